//! Why a node was not reached over HTTP, for who has typed its address.

use std::io::ErrorKind;

/// A sentence with the address, the reason, and what to do where that is known.
pub fn unreachable(address: &str, error: &ureq::Error) -> String {
    let refused =
        matches!(error, ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused);
    let hint = if !address.contains("://") {
        ": an address begins with http:// or https://"
    } else if refused {
        ": does a node run there?"
    } else if error.to_string().contains("UnknownIssuer") {
        ": a node with an authority of its own is believed with --cacert, see certificates.md"
    } else {
        ""
    };
    format!("cannot reach {address}: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_and_one_where_nobody_listens_are_told_apart() {
        let refused = || ureq::Error::Io(ErrorKind::ConnectionRefused.into());
        let told = unreachable("http://127.0.0.1:1", &refused());
        assert!(told.starts_with("cannot reach http://127.0.0.1:1: "), "{told}");
        assert!(told.ends_with(": does a node run there?"), "{told}");
        let told = unreachable("127.0.0.1:8091", &refused());
        assert!(told.ends_with(": an address begins with http:// or https://"), "{told}");
    }
}
