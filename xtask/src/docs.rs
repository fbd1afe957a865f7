//! `cargo xtask docs`: the documentation as one searchable site, built by mdBook, with the SDK references by TypeDoc and pdoc.
//!
//! `docs/README.md` is the table of contents: the site has its sections and links, and each page has its own title. Files that
//! pages link to, such as images and READMEs of other folders, keep their relative paths, so that links are the same in the
//! repository and on the site.

use clap::Args;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{cargo, run, target_dir, workspace};
use xtask_setup::tools;

const MDBOOK: &str = "0.5.4";
const TYPEDOC: &str = "0.28.20";
const PDOC: &str = "pdoc==16.0.0";
/// Folders of the SDK references on the site.
const JS_REFERENCE: &str = "api/js";
const PY_REFERENCE: &str = "api/py";
/// The page that lists all others, and the first page of the site.
const CONTENTS: &str = "docs/README.md";
const FIRST: &str = "README.md";
const BOOK: &str = "[book]
title = \"nacre\"
language = \"en\"
[output.html]
smart-punctuation = false
no-section-label = true
[output.html.search]
limit-results = 20
";

/// Options of `cargo xtask docs`.
#[derive(Args, Debug)]
pub struct Docs {
    /// Folder of the finished site; target/site when not named
    #[arg(long)]
    to: Option<PathBuf>,
}

/// Builds the site and checks all its links.
///
/// # Errors
/// Reports a page that cannot be read, or broken links.
pub fn run_chore(options: &Docs) -> Result<(), String> {
    let program = mdbook()?;
    let book = target_dir()?.join("docs");
    let site =
        options.to.clone().map_or_else(|| Ok(target_dir()?.join("site")), Ok::<_, String>)?;
    let site = std::path::absolute(site).map_err(|error| error.to_string())?;
    if book.exists() {
        fs::remove_dir_all(&book).map_err(|error| format!("{}: {error}", book.display()))?;
    }
    let files = reachable(&workspace())?;
    for file in &files {
        copy(&workspace().join(file), &book.join("src").join(on_site(file)))?;
    }
    write(&book.join("src/SUMMARY.md"), &summary(&workspace(), &files)?)?;
    write(&book.join("book.toml"), BOOK)?;
    let mut build = Command::new(program);
    build.arg("build").arg("--dest-dir").arg(&site).arg(&book);
    run(&mut build, "make the site with mdBook")?;
    let broken = broken_links(&site, &files)?;
    if !broken.is_empty() {
        return Err(format!("links of the site lead nowhere:\n{}", broken.join("\n")));
    }
    references(&site)?;
    println!("{} files, no link leads nowhere: {}", files.len(), site.join("index.html").display());
    Ok(())
}

/// Builds the SDK references from their comments; fails if a public name has no comment.
fn references(site: &Path) -> Result<(), String> {
    let typedoc = tools::npm("typedoc", TYPEDOC)?;
    let mut js = Command::new("node");
    js.arg(typedoc.join("bin/typedoc")).current_dir(workspace().join("sdk-js"));
    js.args(["--entryPoints", "src/index.ts", "src/web.ts", "src/device-sync.ts"]);
    js.args(["--readme", "README.md"]);
    js.args([
        "--name",
        "sdk-js",
        "--excludeInternal",
        "--excludeProtected",
        "--skipErrorChecking",
        "--disableSources",
    ]);
    js.args(["--treatValidationWarningsAsErrors", "--logLevel", "Warn", "--out"])
        .arg(site.join(JS_REFERENCE));
    run(&mut js, "make the reference of sdk-js with TypeDoc")?;
    let pdoc = tools::python("pdoc-16", &[PDOC])?;
    let mut py = Command::new(pdoc);
    py.args(["-m", "pdoc", "nacre", "nacre.exceptions", "nacre.options"]);
    py.args(["--docformat", "google", "--output-directory"]).arg(site.join(PY_REFERENCE));
    py.env("PYTHONPATH", workspace().join("sdk-py/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // pdoc warns about each member that a class inherits from a private module.
        .env("PYTHONWARNINGS", "ignore");
    run(&mut py, "make the reference of sdk-py with pdoc")
}

fn mdbook() -> Result<PathBuf, String> {
    let folder = tools::dir()?.join(format!("mdbook-{MDBOOK}"));
    tools::once(&folder, || {
        eprintln!("Building mdBook {MDBOOK} in {} (some minutes)", folder.display());
        let mut install = cargo();
        install
            .args(["install", "mdbook", "--locked", "--quiet", "--version", MDBOOK])
            .args(["--no-default-features", "--features", "search", "--root"])
            .arg(&folder);
        run(&mut install, "build mdBook (crates.io must be in reach)")
    })?;
    Ok(folder.join("bin/mdbook"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the name of a file on the site: a folder's README becomes its index.
fn on_site(file: &Path) -> PathBuf {
    match file.file_name() {
        Some(name) if name == "README.md" => file.with_file_name("index.md"),
        _ => file.to_owned(),
    }
}

/// Copies a file, and changes its links to READMEs into links to their names on the site.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let cannot = |error| format!("{}: {error}", from.display());
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(cannot)?;
    if is_page(from) {
        let text = read(from)?;
        let text = ["](", "/"].iter().fold(text, |text, before| {
            [")", "#"].iter().fold(text, |text, after| {
                let [readme, index] =
                    ["README", "index"].map(|name| format!("{before}{name}.md{after}"));
                text.replace(&readme, &index)
            })
        });
        return write(to, &text);
    }
    fs::copy(from, to).map(drop).map_err(cannot)
}

/// Returns the targets of a text's links within the repository, without fragments. Code has no links.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target);
            }
        }
    }
    found
}

/// Returns `link` on `page` as a path from the root of the repository.
fn resolve(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(page).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// Returns all files that can be reached by links from the first page and the contents, as paths from the root of the repository.
fn reachable(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![PathBuf::from(FIRST), PathBuf::from(CONTENTS)];
    while let Some(path) = waiting.pop() {
        if !root.join(&path).is_file() || !found.insert(path.clone()) || !is_page(&path) {
            continue;
        }
        let text = read(&root.join(&path))?;
        waiting.extend(links(&text).into_iter().map(|link| resolve(&path, link)));
    }
    Ok(found)
}

/// Returns the title of a page: its first heading.
fn title(root: &Path, page: &Path) -> Result<String, String> {
    let text = read(&root.join(page))?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    heading
        .map(|heading| heading.replace('`', ""))
        .ok_or_else(|| format!("{} has no title", page.display()))
}

/// Returns the contents in mdBook's form: the sections of [`CONTENTS`], the decisions below their own page, and then all other
/// pages.
fn summary(root: &Path, files: &BTreeSet<PathBuf>) -> Result<String, String> {
    let pages = || files.iter().map(PathBuf::as_path).filter(|path| is_page(path));
    let mut left: BTreeSet<&Path> = pages().collect();
    left.remove(Path::new(FIRST));
    let mut text = String::from("# Summary\n\n");
    let mut add = |text: &mut String, page: PathBuf, indent: &str| -> Result<bool, String> {
        let is_new = left.remove(page.as_path());
        if is_new {
            let title = title(root, &page)?;
            writeln!(text, "{indent}- [{title}]({})", on_site(&page).display())
                .map_err(|error| error.to_string())?;
        }
        Ok(is_new)
    };
    text.push_str(&format!("[nacre]({})\n", on_site(Path::new(FIRST)).display()));
    let contents = read(&root.join(CONTENTS))?;
    for line in contents.lines() {
        if let Some(section) = line.strip_prefix("## ") {
            writeln!(text, "\n# {section}\n").map_err(|error| error.to_string())?;
        }
        for link in links(line) {
            let page = resolve(Path::new(CONTENTS), link);
            if !(is_page(&page) && add(&mut text, page.clone(), "")?) {
                continue;
            }
            if page.file_name().is_some_and(|name| name == "README.md") && page.starts_with("docs")
            {
                for below in links(&read(&root.join(&page))?) {
                    let below = resolve(&page, below);
                    if below.parent() == page.parent() {
                        add(&mut text, below, "  ")?;
                    }
                }
            }
        }
    }
    text.push_str("\n# More\n\n");
    for page in pages() {
        add(&mut text, page.to_owned(), "")?;
    }
    Ok(text)
}

/// Returns links and images on the site that lead to no file, each with its page.
fn broken_links(site: &Path, files: &BTreeSet<PathBuf>) -> Result<Vec<String>, String> {
    let mut broken = Vec::new();
    for page in files.iter().filter(|path| is_page(path)) {
        let page = on_site(page).with_extension("html");
        let text = read(&site.join(&page))?;
        let targets = [" href=\"", " src=\""].map(|attribute| text.split(attribute).skip(1));
        for rest in targets.into_iter().flatten() {
            let target = rest.split(['"', '#', '?']).next().unwrap_or_default();
            let stays = !target.is_empty() && !target.contains(':') && !target.starts_with('/');
            if stays && !site.join(resolve(&page, target)).is_file() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_and_to_other_sites_are_ignored() {
        let text = "[a](x.md#part) ![b](../y.png) [c](https://z) \n```\n[d](w.md)\n```\n[e](#f)";
        assert_eq!(links(text), ["x.md", "../y.png"]);
        assert_eq!(resolve(Path::new("docs/a/b.md"), "../../c.md"), Path::new("c.md"));
    }

    #[test]
    fn each_page_of_docs_is_in_the_contents_once() {
        let root = workspace();
        let files = reachable(&root).unwrap();
        let summary = summary(&root, &files).unwrap();
        let (_, more) = summary.split_once("# More").unwrap();
        for file in files.iter().filter(|path| is_page(path)) {
            let link = format!("]({})", on_site(file).display());
            assert_eq!(summary.matches(&link).count(), 1, "{link}");
        }
        let missing: Vec<_> = more.lines().filter(|line| line.contains("(docs/")).collect();
        assert_eq!(missing, ["- [Documentation](docs/index.md)"]);
    }
}
