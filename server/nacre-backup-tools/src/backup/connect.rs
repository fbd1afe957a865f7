//! Clients of object stores. Endpoints and credentials come from the environment variables that the vendors' own tools read.

use nacre_backup::{ObjectStoreKind, RemoteAddress};
use object_store::aws::AmazonS3Builder;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientOptions, Error, ObjectStore, RetryConfig};
use std::time::Duration;

/// Time after which the library stops retrying a failed request. [`PatientStore`](super::patient::PatientStore) retries longer.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of retries by the library.
const RETRIES_MAX: usize = 3;

/// Time limits of a connection, and of a request with its response. Source: defaults of the library.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// An environment variable of Google's libraries: the address of an emulator, which needs no login.
const GOOGLE_EMULATOR: &str = "STORAGE_EMULATOR_HOST";
/// Environment variables of Azure's command line that the library does not read.
const AZURE_VARIABLES: [(&str, AzureConfigKey); 2] = [
    ("AZURE_STORAGE_ACCOUNT", AzureConfigKey::AccountName),
    ("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey),
];
const AZURE_CONNECTION_STRING: &str = "AZURE_STORAGE_CONNECTION_STRING";

/// Values of environment variables.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Creates a client of the store that an address names. Sends no request yet.
///
/// # Errors
/// A sentence about a malformed environment.
pub(super) fn connect(
    address: &RemoteAddress<'_>,
    variables: Variables<'_>,
) -> Result<Box<dyn ObjectStore>, String> {
    // Fails if a provider is already installed; any provider works.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let container = address.container;
    match address.scheme.kind {
        ObjectStoreKind::S3 => built(s3(container, variables).build()),
        ObjectStoreKind::Gcs => built(gcs(container, variables).build()),
        ObjectStoreKind::Azure => built(azure(container, variables)?.build()),
    }
}

fn built<S: ObjectStore>(store: object_store::Result<S>) -> Result<Box<dyn ObjectStore>, String> {
    store.map(|store| Box::new(store) as Box<dyn ObjectStore>).map_err(|error| reason(&error))
}

fn retry() -> RetryConfig {
    RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}

fn s3(bucket: &str, variables: Variables<'_>) -> AmazonS3Builder {
    // A local store may have no certificate.
    let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let endpoints: Vec<String> = endpoints.iter().filter_map(|name| variables(name)).collect();
    let is_plain = endpoints.iter().any(|endpoint| endpoint.starts_with("http://"));
    let builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_allow_http(is_plain)
        .with_retry(retry());
    match endpoints.is_empty() {
        true => builder,
        false => builder.with_http_connector(Direct { is_plain }),
    }
}

fn gcs(bucket: &str, variables: Variables<'_>) -> GoogleCloudStorageBuilder {
    let mut builder =
        GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry());
    if let Some(host) = variables(GOOGLE_EMULATOR) {
        let url = if host.contains("://") { host } else { format!("http://{host}") };
        // The emulator accepts any token; without one, the library would request one from the machine before it writes.
        builder = builder.with_base_url(url.trim_end_matches('/')).with_bearer_token("emulator");
    }
    match builder.get_config_value(&GoogleConfigKey::BaseUrl) {
        None => builder,
        // Tokens come from the metadata service of the machine, which has no certificate.
        Some(_) => builder.with_http_connector(Direct { is_plain: true }),
    }
}

fn azure(container: &str, variables: Variables<'_>) -> Result<MicrosoftAzureBuilder, String> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (key, value) in azure_settings(variables)? {
        builder = builder.with_config(key, value);
    }
    let value = |key| builder.get_config_value(&key);
    let is_emulator = value(AzureConfigKey::UseEmulator).is_some_and(|text| text == "true");
    if value(AzureConfigKey::AccountName).is_none() && !is_emulator {
        return Err("name the storage account by AZURE_STORAGE_ACCOUNT".to_owned());
    }
    let endpoint = value(AzureConfigKey::Endpoint);
    let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let builder =
        builder.with_container_name(container).with_allow_http(is_plain).with_retry(retry());
    Ok(match endpoint {
        None => builder,
        Some(_) => builder.with_http_connector(Direct { is_plain: true }),
    })
}

/// Returns the settings from variables that the library does not read. A connection string takes precedence, as for Azure's command line.
fn azure_settings(variables: Variables<'_>) -> Result<Vec<(AzureConfigKey, String)>, String> {
    let single = AZURE_VARIABLES.iter().filter_map(|(name, key)| Some((*key, variables(name)?)));
    let mut settings: Vec<(AzureConfigKey, String)> = single.collect();
    if let Some(text) = variables(AZURE_CONNECTION_STRING) {
        settings.extend(connection_string(&text)?);
    }
    Ok(settings)
}

/// Reads a connection string: `AccountName=shop;AccountKey=…;EndpointSuffix=core.windows.net`. The text is a secret, so messages do not quote it.
fn connection_string(text: &str) -> Result<Vec<(AzureConfigKey, String)>, String> {
    let mut settings = Vec::new();
    let (mut protocol, mut account, mut suffix, mut has_endpoint) = ("https", None, None, false);
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            format!("{AZURE_CONNECTION_STRING} does not consist of NAME=VALUE, with ; between them")
        })?;
        let key = match name {
            "AccountName" => {
                account = Some(value);
                AzureConfigKey::AccountName
            }
            "AccountKey" => AzureConfigKey::AccessKey,
            "SharedAccessSignature" => AzureConfigKey::SasKey,
            "BlobEndpoint" => {
                has_endpoint = true;
                AzureConfigKey::Endpoint
            }
            "UseDevelopmentStorage" => AzureConfigKey::UseEmulator,
            "DefaultEndpointsProtocol" => {
                protocol = value;
                continue;
            }
            "EndpointSuffix" => {
                suffix = Some(value);
                continue;
            }
            // Settings of queues, tables and files.
            _ => continue,
        };
        settings.push((key, value.trim_end_matches('/').to_owned()));
    }
    if let (Some(account), Some(suffix), false) = (account, suffix, has_endpoint) {
        let endpoint = format!("{protocol}://{account}.blob.{suffix}");
        settings.push((AzureConfigKey::Endpoint, endpoint));
    }
    Ok(settings)
}

/// Client of a store with an explicit endpoint. It follows no redirections: they could lead to hosts that a node must not reach on behalf of
/// the user who named the endpoint.
#[derive(Debug)]
struct Direct {
    is_plain: bool,
}

impl HttpConnector for Direct {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .https_only(!self.is_plain)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .build();
        let failed = |error| Error::Generic { store: "object store", source: Box::new(error) };
        client.map(HttpClient::new).map_err(failed)
    }
}

/// Describes an error with its causes: most errors of stores name the cause in their source only.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        source = error.source();
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_backup::SCHEMES;
    use std::collections::BTreeMap;

    const KEY: &str = "a2V5";

    fn environment<'a>(variables: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        move |name| variables.get(name).map(|value| (*value).to_owned())
    }

    fn connected(address: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let address = RemoteAddress::read(address).unwrap().unwrap();
        connect(&address, &environment(variables)).map(|store| store.to_string())
    }

    #[test]
    fn every_scheme_has_a_client() {
        let variables = [("AZURE_STORAGE_ACCOUNT", "shop"), ("AZURE_STORAGE_KEY", KEY)];
        for scheme in &SCHEMES {
            let address = format!("{}://place/path", scheme.name);
            let client = connected(&address, &variables).unwrap();
            assert!(client.contains("place"), "{client}");
        }
    }

    #[test]
    fn azure_is_reached_by_an_account_or_a_connection_string() {
        let of = |variables: &[(&str, &str)]| {
            let builder = azure("c", &environment(variables))?;
            let value = |key| builder.get_config_value(&key).unwrap_or_default();
            let keys =
                [AzureConfigKey::AccountName, AzureConfigKey::AccessKey, AzureConfigKey::Endpoint];
            Ok::<_, String>(keys.map(value))
        };
        let account = [("AZURE_STORAGE_ACCOUNT", "shop"), ("AZURE_STORAGE_KEY", KEY)];
        assert_eq!(of(&account).unwrap(), ["shop", KEY, ""]);
        let both = |text| [account[0], account[1], (AZURE_CONNECTION_STRING, text)];
        let local = "DefaultEndpointsProtocol=http;AccountName=dev;AccountKey=eA==;\
            BlobEndpoint=http://127.0.0.1:10000/dev/;QueueEndpoint=http://127.0.0.1:10001/dev;";
        assert_eq!(of(&both(local)).unwrap(), ["dev", "eA==", "http://127.0.0.1:10000/dev"]);
        let cloud = "DefaultEndpointsProtocol=https;AccountName=a;EndpointSuffix=example.cn";
        assert_eq!(of(&both(cloud)).unwrap(), ["a", KEY, "https://a.blob.example.cn"]);
        assert!(of(&[]).unwrap_err().contains("AZURE_STORAGE_ACCOUNT"));
        let secret = of(&both("AccountName=a;hush")).unwrap_err();
        assert!(secret.contains("NAME=VALUE") && !secret.contains("hush"), "{secret}");
    }

    #[test]
    fn an_emulator_of_google_needs_no_login() {
        let of = |host| {
            let builder = gcs("b", &environment(&[(GOOGLE_EMULATOR, host)]));
            let value = |key| builder.get_config_value(&key).unwrap_or_default();
            [value(GoogleConfigKey::BaseUrl), value(GoogleConfigKey::BearerToken)]
        };
        assert_eq!(of("127.0.0.1:4443"), ["http://127.0.0.1:4443", "emulator"]);
        assert_eq!(of("https://store/"), ["https://store", "emulator"]);
        let real = gcs("b", &environment(&[]));
        for key in [GoogleConfigKey::BaseUrl, GoogleConfigKey::BearerToken] {
            assert_eq!(real.get_config_value(&key), None);
        }
    }
}
