"""Links of analytics: access to the data of other clusters and stores."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar, Self
from urllib.parse import urlencode

from .._record import dataclass
from ..exceptions import InvalidArgumentException


class AnalyticsLinkType(Enum):
    """Kind of the store that a link leads to."""

    S3External = "s3"
    AzureBlobExternal = "azureblob"
    CouchbaseRemote = "couchbase"


class AnalyticsEncryptionLevel(Enum):
    """What is encrypted on a link to another cluster."""

    NONE = "none"
    HALF = "half"
    """Only the password."""
    FULL = "full"
    """All data, with TLS."""


@dataclass(frozen=True, slots=True)
class AnalyticsLink(ABC):
    """A link: access to the data of another cluster or store."""

    dataverse: str
    link_name: str
    _KIND: ClassVar[AnalyticsLinkType]

    def name(self) -> str:
        """Returns the name of the link."""
        return self.link_name

    def dataverse_name(self) -> str:
        """Returns the dataverse of the link."""
        return self.dataverse

    def link_type(self) -> AnalyticsLinkType:
        """Returns the kind of the link."""
        return self._KIND

    def form_encode(self) -> bytes:
        """Returns the link as a form, in the format of the service."""
        fields: dict[str, Any] = {"type": self._KIND.value, **self._fields()}
        if "/" not in self.dataverse:
            fields |= {"dataverse": self.dataverse, "name": self.link_name}
        return urlencode(
            {key: value for key, value in fields.items() if value is not None}
        ).encode()

    def validate(self) -> None:
        """Raises if the link is invalid.

        Raises:
            InvalidArgumentException: if something is missing.
        """
        for name, value in {
            "dataverse": self.dataverse,
            "name": self.link_name,
            **self._required(),
        }.items():
            if not value:
                raise InvalidArgumentException(f"a link of type {self._KIND.value} needs {name}")

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Returns the members that are set."""

    @classmethod
    @abstractmethod
    def link_from_server_json(cls, members: Mapping[str, Any]) -> Self:
        """Parses a link from the service, which returns no secrets."""

    @abstractmethod
    def _fields(self) -> dict[str, str | None]:
        """Returns the fields of the form except those of all links."""

    @abstractmethod
    def _required(self) -> dict[str, object]:
        """Returns the members without which the link is invalid, by their names."""


@dataclass(frozen=True, slots=True)
class CouchbaseAnalyticsEncryptionSettings:
    """Encryption of a link to another cluster. Certificates and keys are PEM texts."""

    encryption_level: AnalyticsEncryptionLevel = AnalyticsEncryptionLevel.NONE
    certificate: bytes | None = None
    """Certificate of the other cluster's authority."""
    client_certificate: bytes | None = None
    client_key: bytes | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, str]:
        """Returns the members that are set."""
        members = {
            "encryption_level": self.encryption_level.value,
            "certificate": _text(self.certificate),
            "client_certificate": _text(self.client_certificate),
            "client_key": _text(self.client_key),
        }
        return {name: value for name, value in members.items() if value}

    @classmethod
    def from_server_json(cls, members: Mapping[str, Any]) -> "CouchbaseAnalyticsEncryptionSettings":
        """Parses the settings of a link from the service."""
        return cls(
            AnalyticsEncryptionLevel(members.get("encryption", "none")),
            _bytes(members.get("certificate")),
            _bytes(members.get("clientCertificate")),
            _bytes(members.get("clientKey")),
        )


@dataclass(frozen=True, slots=True)
class CouchbaseRemoteAnalyticsLink(AnalyticsLink):
    """A link to another cluster.

    It needs a user and password. With full encryption, it needs a certificate, and may have a
    client certificate and its key instead of user and password.
    """

    hostname: str
    encryption: CouchbaseAnalyticsEncryptionSettings = CouchbaseAnalyticsEncryptionSettings()
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    _KIND = AnalyticsLinkType.CouchbaseRemote

    def as_dict(self) -> dict[str, Any]:
        """Returns the members that are set."""
        members = _common(self) | {
            "hostname": self.hostname,
            "username": self.username,
            "password": self.password,
            "encryption": self.encryption.as_dict(),
        }
        return _given(members)

    @classmethod
    def link_from_server_json(cls, members: Mapping[str, Any]) -> Self:
        """Parses a link from the service, which returns no secrets."""
        return cls(
            *_names(members),
            members.get("activeHostname") or members.get("hostname") or "",
            CouchbaseAnalyticsEncryptionSettings.from_server_json(members),
            members.get("username") or None,
        )

    def _fields(self) -> dict[str, str | None]:
        encryption = self.encryption
        return {
            "hostname": self.hostname,
            "encryption": encryption.encryption_level.value,
            "username": self.username,
            "password": self.password,
            "certificate": _text(encryption.certificate),
            "clientCertificate": _text(encryption.client_certificate),
            "clientKey": _text(encryption.client_key),
        }

    def _required(self) -> dict[str, object]:
        encryption = self.encryption
        user = self.username and self.password
        if encryption.encryption_level is not AnalyticsEncryptionLevel.FULL:
            return {"hostname": self.hostname, "username and password": user}
        identity = encryption.client_certificate and encryption.client_key
        return {
            "hostname": self.hostname,
            "certificate": encryption.certificate,
            "client_certificate and client_key, or username and password": identity or user,
        }


@dataclass(frozen=True, slots=True)
class S3ExternalAnalyticsLink(AnalyticsLink):
    """A link to a store with the protocol of S3."""

    access_key_id: str
    region: str
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    service_endpoint: str | None = None
    _KIND = AnalyticsLinkType.S3External

    def as_dict(self) -> dict[str, Any]:
        """Returns the members that are set."""
        members = _common(self) | {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "session_token": self.session_token,
            "region": self.region,
            "service_endpoint": self.service_endpoint,
        }
        return _given(members)

    @classmethod
    def link_from_server_json(cls, members: Mapping[str, Any]) -> Self:
        """Parses a link from the service, which returns no secrets."""
        return cls(
            *_names(members),
            members["accessKeyId"],
            members["region"],
            service_endpoint=members.get("serviceEndpoint") or None,
        )

    def _fields(self) -> dict[str, str | None]:
        return {
            "accessKeyId": self.access_key_id,
            "secretAccessKey": self.secret_access_key,
            "sessionToken": self.session_token,
            "region": self.region,
            "serviceEndpoint": self.service_endpoint,
        }

    def _required(self) -> dict[str, object]:
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "region": self.region,
        }


@dataclass(frozen=True, slots=True)
class AzureBlobExternalAnalyticsLink(AnalyticsLink):
    """A link to a blob store of Azure.

    It needs a connection string, or an account name with an account key or a shared access
    signature.
    """

    connection_string: str | None = field(default=None, repr=False)
    account_name: str | None = None
    account_key: str | None = field(default=None, repr=False)
    shared_access_signature: str | None = field(default=None, repr=False)
    blob_endpoint: str | None = None
    endpoint_suffix: str | None = None
    _KIND = AnalyticsLinkType.AzureBlobExternal

    def as_dict(self) -> dict[str, Any]:
        """Returns the members that are set."""
        members = _common(self) | {
            "connection_string": self.connection_string,
            "account_name": self.account_name,
            "account_key": self.account_key,
            "shared_access_signature": self.shared_access_signature,
            "blob_endpoint": self.blob_endpoint,
            "endpoint_suffix": self.endpoint_suffix,
        }
        return _given(members)

    @classmethod
    def link_from_server_json(cls, members: Mapping[str, Any]) -> Self:
        """Parses a link from the service, which returns no secrets."""
        return cls(
            *_names(members),
            account_name=members.get("accountName") or None,
            blob_endpoint=members.get("blobEndpoint") or None,
            endpoint_suffix=members.get("endpointSuffix") or None,
        )

    def _fields(self) -> dict[str, str | None]:
        return {
            "connectionString": self.connection_string,
            "accountName": self.account_name,
            "accountKey": self.account_key,
            "sharedAccessSignature": self.shared_access_signature,
            "blobEndpoint": self.blob_endpoint,
            "endpointSuffix": self.endpoint_suffix,
        }

    def _required(self) -> dict[str, object]:
        key = self.account_key or self.shared_access_signature
        return {
            "connection_string, or account_name and account_key or shared_access_signature": (
                self.connection_string or (self.account_name and key)
            )
        }


LINK_KINDS: dict[str, type[AnalyticsLink]] = {
    kind._KIND.value: kind
    for kind in (
        CouchbaseRemoteAnalyticsLink,
        S3ExternalAnalyticsLink,
        AzureBlobExternalAnalyticsLink,
    )
}
"""Classes of links, by their kinds in the format of the service."""


def _names(members: Mapping[str, Any]) -> tuple[str, str]:
    return members.get("scope") or members["dataverse"], members["name"]


def _common(link: AnalyticsLink) -> dict[str, Any]:
    return {
        "dataverse": link.dataverse,
        "link_name": link.link_name,
        "link_type": link.link_type().value,
    }


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _bytes(text: str | None) -> bytes | None:
    return text.encode() if text else None
