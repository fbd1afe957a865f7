//! The files of the console, as `cargo xtask console` has built them.

/// A file of the console.
#[derive(Clone, Copy)]
pub struct Asset {
    /// Path below `/ui/`.
    pub path: &'static str,
    /// Media type.
    pub media_type: &'static str,
    /// Entity tag, with its quotes.
    pub tag: &'static str,
    /// Whether the bytes are compressed with gzip.
    pub is_compressed: bool,
    /// Content.
    pub bytes: &'static [u8],
}

impl Asset {
    /// Returns true if the name changes with the content, so that a browser may keep the file for good.
    pub fn is_immutable(&self) -> bool {
        self.path.starts_with("assets/")
    }
}

static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Shown in place of the console by a binary that was built without it.
const UNBUILT: &str = "<!doctype html><meta charset=utf-8><title>nacre</title>\
    <h1>nacre</h1><p>This binary was built without the console: run <code>cargo xtask console</code> and build it again.</p>";

/// Returns the files.
pub fn assets() -> &'static [Asset] {
    ASSETS
}

/// Finds a file by its path below `/ui/`.
pub fn asset(path: &str) -> Option<&'static Asset> {
    static PAGE: Asset = Asset {
        path: "index.html",
        media_type: "text/html; charset=utf-8",
        tag: "\"unbuilt\"",
        is_compressed: false,
        bytes: UNBUILT.as_bytes(),
    };
    let known = ASSETS.iter().find(|asset| asset.path == path);
    known.or_else(|| (ASSETS.is_empty() && path == PAGE.path).then_some(&PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_served_with_and_without_a_built_console() {
        let page = asset("index.html").unwrap();
        assert_eq!(page.media_type, "text/html; charset=utf-8");
        assert!(!page.is_immutable());
        assert!(asset("no-such-file").is_none() && asset("../Cargo.toml").is_none());
        assert!(assets().iter().all(|asset| asset.tag.starts_with('"')));
    }
}
