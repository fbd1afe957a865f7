//! Addresses of repositories in object stores: the one table of their schemes.

/// A kind of object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectStoreKind {
    /// Amazon S3, and stores that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

/// A scheme of addresses: `s3://bucket/path`.
#[derive(Debug, PartialEq, Eq)]
pub struct Scheme {
    /// The store that it names.
    pub kind: ObjectStoreKind,
    /// Name, before `://`.
    pub name: &'static str,
    /// The store's term for a container of objects: `bucket` or `container`.
    pub container: &'static str,
    /// Environment variables with credentials, for messages.
    pub credentials: &'static str,
    /// Environment variable with the region, if addresses do not contain it.
    pub region: Option<&'static str>,
    /// Environment variable with the endpoint of another store of this kind, if users of a node may choose it. Requests to S3 are signed
    /// with a secret that they do not contain. Requests to Google contain a token, and those to Azure may; the server that receives
    /// them could use it elsewhere.
    pub endpoint: Option<&'static str>,
}

/// All schemes.
pub const SCHEMES: [Scheme; 3] = [
    Scheme {
        kind: ObjectStoreKind::S3,
        name: "s3",
        container: "bucket",
        credentials: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        region: Some("AWS_REGION"),
        endpoint: Some("AWS_ENDPOINT_URL"),
    },
    Scheme {
        kind: ObjectStoreKind::Gcs,
        name: "gs",
        container: "bucket",
        credentials: "GOOGLE_APPLICATION_CREDENTIALS",
        region: None,
        endpoint: None,
    },
    Scheme {
        kind: ObjectStoreKind::Azure,
        name: "az",
        container: "container",
        credentials: "AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY",
        region: None,
        endpoint: None,
    },
];

/// Between the name of a scheme and the rest of an address.
const SEPARATOR: &str = "://";

impl Scheme {
    /// Returns the form of addresses: `s3://BUCKET/PATH`.
    pub fn form(&self) -> String {
        format!("{}{SEPARATOR}{}/PATH", self.name, self.container.to_uppercase())
    }
}

/// A place in an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress<'a> {
    /// Scheme.
    pub scheme: &'static Scheme,
    /// Bucket or container.
    pub container: &'a str,
    /// Path in it, without `/` at the ends; may be empty.
    pub path: &'a str,
}

impl<'a> RemoteAddress<'a> {
    /// Reads an address. Returns `None` for a folder, whose path does not begin with a word and `://`.
    ///
    /// # Errors
    /// A sentence if the scheme is unknown, or no bucket or container is named.
    pub fn read(text: &'a str) -> Result<Option<RemoteAddress<'a>>, String> {
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let found = text.split_once(SEPARATOR).filter(|(name, _)| is_name(name));
        let Some((name, rest)) = found else { return Ok(None) };
        let forms = || SCHEMES.iter().map(Scheme::form).collect::<Vec<_>>().join(", ");
        let scheme = SCHEMES
            .iter()
            .find(|scheme| scheme.name == name)
            .ok_or_else(|| format!("{text}: name a folder, or one of {}", forms()))?;
        let (container, path) = rest.split_once('/').unwrap_or((rest, ""));
        if container.is_empty() {
            return Err(format!("{text}: name a {}, as {}", scheme.container, scheme.form()));
        }
        Ok(Some(RemoteAddress { scheme, container, path: path.trim_matches('/') }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_store_a_container_and_a_path() {
        let parts = |text| {
            let address = RemoteAddress::read(text).unwrap().unwrap();
            (address.scheme.kind, address.container, address.path)
        };
        assert_eq!(parts("s3://backups"), (ObjectStoreKind::S3, "backups", ""));
        assert_eq!(parts("gs://backups/"), (ObjectStoreKind::Gcs, "backups", ""));
        assert_eq!(parts("az://c/shop/daily/"), (ObjectStoreKind::Azure, "c", "shop/daily"));
        for folder in ["backups", "/mnt/s3/backups", "s3:/backups", "/mnt/a://b", ""] {
            assert_eq!(RemoteAddress::read(folder), Ok(None), "{folder}");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_the_valid_forms() {
        let refused = |text| RemoteAddress::read(text).unwrap_err();
        assert_eq!(refused("s3:///shop"), "s3:///shop: name a bucket, as s3://BUCKET/PATH");
        assert_eq!(refused("az://"), "az://: name a container, as az://CONTAINER/PATH");
        for text in ["gcs://b/p", "S3://b/p", "http://host/x", "://b"] {
            let said = refused(text);
            let forms = "s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH";
            assert_eq!(said, format!("{text}: name a folder, or one of {forms}"));
        }
    }
}
