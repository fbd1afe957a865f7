//! Packages of plugins, and their deployments.

use super::definitions::{Definitions, encoded};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nacre_cli::{Failure, Server};
use serde_json::{Value, json};

/// The kind of the definitions with packages.
pub(super) const PACKAGES: &str = "packages";
/// Maximum size of all packages in base64, in bytes: they are part of a manifest, which is read as a whole.
const PACKAGES_BYTES_MAX: usize = 128 << 20;

/// Reads the packages of a cluster.
///
/// # Errors
/// A sentence, for a user who does not administer plugins, or if the packages are too large.
pub(super) fn read(server: &Server) -> Result<Value, String> {
    let cannot = |reason: Failure| format!("packages of plugins cannot be backed up: {reason}");
    let listed = server.call("GET", "/plugins", b"").map_err(cannot)?;
    let (mut packages, mut bytes) = (Vec::new(), 0);
    for package in listed.as_array().into_iter().flatten() {
        let (Some(name), Some(version)) = (package["name"].as_str(), package["version"].as_str())
        else {
            continue;
        };
        let path = format!("{}?archive=true", path(name, version));
        let found = server.call("GET", &path, b"").map_err(cannot)?;
        let archive = found["archive"].as_str().ok_or_else(|| {
            format!(
                "the package {name} {version} cannot be backed up: the cluster does not send it"
            )
        })?;
        bytes += archive.len();
        if bytes > PACKAGES_BYTES_MAX {
            return Err("the packages of plugins are too large for a backup: keep them elsewhere, and leave out --with-packages".to_owned());
        }
        packages.push(json!({"name": name, "version": version, "archive": archive}));
    }
    Ok(Value::Array(packages))
}

fn path(name: &str, version: &str) -> String {
    format!("/plugins/{}/{}", encoded(name), encoded(version))
}

/// Creates packages and deployments that are missing. Deployments that follow documents are paused.
pub(super) fn create(
    server: &Server,
    definitions: &Definitions,
    created: &mut u64,
    failed: &mut Vec<String>,
) {
    for package in definitions.get(PACKAGES).and_then(Value::as_array).into_iter().flatten() {
        let (Some(name), Some(version)) = (package["name"].as_str(), package["version"].as_str())
        else {
            continue;
        };
        match upload(server, &path(name, version), &package["archive"]) {
            Ok(is_new) => *created += u64::from(is_new),
            Err(reason) => failed.push(format!("package {name} {version}: {reason}")),
        }
    }
    let deployments = definitions.get("deployments").and_then(Value::as_array);
    let Some(deployments) = deployments.filter(|all| !all.is_empty()) else { return };
    let present = match server.call("GET", "/deployments", b"") {
        Ok(present) => present,
        Err(reason) => return failed.push(format!("deployments: {reason}")),
    };
    for deployment in deployments {
        let Some(name) = deployment["name"].as_str() else { continue };
        if present.as_array().into_iter().flatten().any(|known| known["name"] == name) {
            continue;
        }
        let path = format!("/deployments/{}", encoded(name));
        let put = request_of(deployment)
            .and_then(|wanted| server.call("PUT", &path, wanted.to_string().as_bytes()));
        match put {
            Ok(_) => *created += 1,
            Err(reason) => failed.push(format!("deployment {name}: {reason}")),
        }
    }
}

/// Uploads a package; returns false if the cluster has its version already.
fn upload(server: &Server, path: &str, archive: &Value) -> Result<bool, Failure> {
    if server.knows(path)? {
        return Ok(false);
    }
    let archive = STANDARD.decode(archive.as_str().unwrap_or_default());
    let archive = archive.map_err(|error| format!("it is not base64: {error}"))?;
    server.call("POST", "/plugins", &archive)?;
    Ok(true)
}

/// Returns the request that creates a deployment with this status.
fn request_of(status: &Value) -> Result<Value, Failure> {
    if status.get("config").is_none() {
        let reason =
            "its configuration is not in the backup: its creator may not read configurations";
        return Err(reason.into());
    }
    let mut wanted = json!({
        "package": status["package"],
        "version": status["version"],
        "config": status["config"],
    });
    for member in ["bucket", "scope", "collection"] {
        if let Some(value) = status["source"].get(member).filter(|value| value.is_string()) {
            wanted[member] = value.clone();
        }
    }
    if status["grants"].is_object() {
        wanted["grants"] = status["grants"].clone();
    }
    // A deployment that does not follow documents has no start, and cannot be paused.
    if let Some(since) = status["since"].as_str() {
        // A token is valid in its own bucket only.
        let since = if since == "everything" { since } else { "now" };
        wanted["since"] = since.into();
        wanted["paused"] = true.into();
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_created_from_its_status_and_is_paused() {
        let status = json!({
            "name": "sums", "package": "sums", "version": "1", "world": "service", "config": {"a": 1}, "owner": "ann",
            "source": {"bucket": "b", "scope": "s"}, "since": "everything", "grants": {}, "state": "running",
        });
        let expected = json!({
            "package": "sums", "version": "1", "config": {"a": 1}, "bucket": "b", "scope": "s", "since": "everything",
            "grants": {}, "paused": true,
        });
        assert_eq!(request_of(&status), Ok(expected));
        let mut later = status.clone();
        later["since"] = "0.1.2".into();
        assert_eq!(request_of(&later).unwrap()["since"], "now");
    }

    #[test]
    fn functions_are_not_paused_and_a_hidden_configuration_is_named() {
        let mut status =
            json!({"package": "f", "version": "1", "world": "functions", "config": {}});
        assert_eq!(request_of(&status), Ok(json!({"package": "f", "version": "1", "config": {}})));
        status.as_object_mut().unwrap().remove("config");
        assert!(request_of(&status).unwrap_err().reason.contains("configuration"));
    }
}
