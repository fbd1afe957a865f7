//! `cargo xtask dist`: the installable artefacts, all from one build.
//!
//! ```text
//! dist/nacre-VERSION-linux-x86_64.tar.gz    one static binary, completions, manual pages, unit, dashboards, install.sh
//! dist/nacre_VERSION_amd64.deb              the same for Debian and its relatives
//! dist/nacre-VERSION-image.tar.gz           folder from which `docker build` makes an image, without a network
//! dist/nacre-VERSION.cdx.json               bill of materials (CycloneDX 1.5)
//! dist/SHA256SUMS                           checksums of all of them
//! ```
//!
//! `--embedded` makes the packages for databases in the process instead: see [`embedded`].
//!
//! The binary is linked statically to glibc: see decision 0063. Every artefact is tested: the archive in a chroot without other
//! files, with the commands of the README; the package by its installed files; the unit by systemd's rating of its exposure.

mod bill;
mod embedded;
mod trial;

use clap::Args;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{cargo, output, run, target_dir, workspace};
use xtask_setup::{node, plugins};

/// Maximum size of the stripped binary of the profile `release`, in bytes.
const BINARY_BYTES_MAX: u64 = 60 << 20;
/// The modification time of all files, so that two builds of the same sources give the same archives: 1 January 2026, in seconds.
const EPOCH: &str = "1767225600";
/// The user of the image, which is unlikely to be used by another program.
const IMAGE_USER: u32 = 10001;

/// Options of `cargo xtask dist`.
#[derive(Args, Debug)]
pub struct Dist {
    /// Package the binary that the tests have built, dynamically linked and not optimized: to try packaging in seconds
    #[arg(long)]
    quick: bool,
    /// Profile of the binary
    #[arg(long, default_value = "release", conflicts_with = "quick")]
    profile: String,
    /// Folder for the artefacts (default: `dist` in the target directory)
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Do not test the artefacts
    #[arg(long)]
    untried: bool,
    /// Build and test only the packages for databases in the process: a wheel and an npm package
    #[arg(long, conflicts_with_all = ["quick", "profile", "untried"])]
    embedded: bool,
}

/// Builds the artefacts and tests them.
///
/// # Errors
/// Reports what is missing or does not work.
pub fn run_chore(options: &Dist) -> Result<(), String> {
    if options.embedded {
        let folder = match &options.folder {
            Some(folder) => folder.clone(),
            None => target_dir()?.join("dist-embedded"),
        };
        return embedded::make(&folder);
    }
    let binary = if options.quick { node::built("dev")? } else { build(&options.profile)? };
    make(options, &binary).map(drop)
}

/// Packages the binary of the tests and tests the packages, within seconds.
///
/// # Errors
/// As for [`run_chore`].
pub fn quick(binary: &Path) -> Result<(), String> {
    let options = Dist {
        quick: true,
        profile: "dev".to_owned(),
        folder: None,
        untried: false,
        embedded: false,
    };
    make(&options, binary).map(drop)
}

fn make(options: &Dist, binary: &Path) -> Result<(), String> {
    let version = env!("CARGO_PKG_VERSION");
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => target_dir()?.join("dist"),
    };
    let _ = fs::remove_dir_all(&folder);
    let name = format!("nacre-{version}-linux-{}", std::env::consts::ARCH);
    let tree = folder.join(&name);
    stage(&tree, binary)?;
    let bytes = size(&tree.join("bin/nacre"))?;
    println!("{name}: the stripped binary has {:.1} MB", bytes as f64 / 1e6);
    if options.profile == "release" && bytes > BINARY_BYTES_MAX {
        return Err(format!("the binary has {bytes} bytes, which is more than {BINARY_BYTES_MAX}"));
    }
    let mut made = vec![folder.join(format!("{name}.tar.gz"))];
    archive(&tree, &made[0], options.quick)?;
    made.push(package(&folder, &tree, version, options.quick)?);
    let image = folder.join(format!("nacre-{version}-image"));
    stage_image(&image, &tree)?;
    made.push(folder.join(format!("nacre-{version}-image.tar.gz")));
    archive(&image, &made[2], options.quick)?;
    made.push(folder.join(format!("nacre-{version}.cdx.json")));
    let bill = bill::of("nacre-server", version)?;
    write(&made[3], &bill)?;
    check_sums(&folder, &made)?;
    for path in &made {
        println!("{:>10.1} MB  {}", size(path)? as f64 / 1e6, path.display());
    }
    if options.untried {
        return Ok(());
    }
    trial::in_empty_root(&made[0], &folder.join("trial"), options.quick)?;
    trial::package(&made[1], &folder.join("trial-deb"))?;
    trial::image(&image, &folder.join("trial-image"), options.quick)?;
    trial::installer(&tree, &folder.join("trial-install"))?;
    trial::full_disk(&tree, &folder.join("trial-full"))?;
    trial::unit(&workspace().join("packaging/nacre.service"))
}

/// Builds the server as one static file.
fn build(profile: &str) -> Result<PathBuf, String> {
    println!("building plugins and server ({profile}): some twenty minutes the first time");
    plugins::build()?;
    let mut build = cargo();
    build.args(["rustc", "-p", "nacre-server", "--bin", "nacre", "--profile", profile]);
    // Only the last step, linking, differs: the dependencies are those of any other build.
    build.args(["--", "-C", "target-feature=+crt-static"]);
    run(&mut build, "build the server")?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let binary = target_dir()?.join(folder).join("nacre");
    let kind = output(Command::new("file").arg("-b").arg(&binary), "look at the binary")
        .unwrap_or_default();
    if kind.contains("dynamically linked") {
        return Err(format!("{} is not static: {kind}", binary.display()));
    }
    Ok(binary)
}

/// Creates the tree of an installation.
fn stage(tree: &Path, binary: &Path) -> Result<(), String> {
    let packaging = workspace().join("packaging");
    let (bin, etc, share) = (tree.join("bin"), tree.join("etc"), tree.join("share"));
    let man = share.join("man/man1");
    let completions = [
        ("bash", share.join("bash-completion/completions"), "nacre"),
        ("zsh", share.join("zsh/site-functions"), "_nacre"),
        ("fish", share.join("fish/vendor_completions.d"), "nacre.fish"),
    ];
    for folder in [&bin, &etc, &man].into_iter().chain(completions.iter().map(|(_, to, _)| to)) {
        create(folder)?;
    }
    let nacre = bin.join("nacre");
    let strip = Command::new("strip").arg("-o").arg(&nacre).arg(binary).status();
    if !strip.is_ok_and(|status| status.success()) {
        return Err("strip is needed, which comes with every C compiler".to_owned());
    }
    for (shell, folder, file) in completions {
        let script =
            output(Command::new(&nacre).args(["completions", shell]), "write completions")?;
        write(&folder.join(file), &script)?;
    }
    run(Command::new(&nacre).arg("man").arg(&man), "write manual pages")?;
    for (from, to) in [
        ("nacre.toml", etc.join("nacre.toml")),
        ("nacre.service", etc.join("nacre.service")),
        ("install.sh", tree.join("install.sh")),
        ("prometheus", etc.join("prometheus")),
        ("grafana", etc.join("grafana")),
        ("../LICENSE", tree.join("LICENSE")),
        ("../README.md", tree.join("README.md")),
        ("../CHANGELOG.md", tree.join("CHANGELOG.md")),
    ] {
        copy(&packaging.join(from), &to)?;
    }
    Ok(())
}

/// Builds the Debian package; returns its path.
fn package(folder: &Path, tree: &Path, version: &str, quick: bool) -> Result<PathBuf, String> {
    let root = folder.join("deb");
    let packaging = workspace().join("packaging");
    for (from, to) in [
        (tree.join("bin"), "usr/bin"),
        (tree.join("share"), "usr/share"),
        (tree.join("etc/nacre.toml"), "etc/nacre/nacre.toml"),
        (tree.join("etc/nacre.service"), "usr/lib/systemd/system/nacre.service"),
        (tree.join("etc/prometheus"), "usr/share/nacre/prometheus"),
        (tree.join("etc/grafana"), "usr/share/nacre/grafana"),
        (tree.join("LICENSE"), "usr/share/doc/nacre/copyright"),
        (packaging.join("debian/postinst"), "DEBIAN/postinst"),
        (packaging.join("debian/prerm"), "DEBIAN/prerm"),
        (packaging.join("debian/postrm"), "DEBIAN/postrm"),
    ] {
        let to = root.join(to);
        create(to.parent().unwrap_or(&root))?;
        copy(&from, &to)?;
    }
    let kilobytes = size(&root.join("usr/bin/nacre"))? >> 10;
    let control = format!(
        "Package: nacre\nVersion: {version}\nSection: database\nPriority: optional\nArchitecture: amd64\n\
         Installed-Size: {kilobytes}\nPre-Depends: adduser\nMaintainer: nacre <nacre@localhost>\n\
         Description: memory-first JSON document database\n nacre speaks Couchbase's protocols, so that its SDKs connect \
         unmodified.\n Views, SQL++, functions and plugins run beside the data in a sandbox.\n"
    );
    write(&root.join("DEBIAN/control"), &control)?;
    write(&root.join("DEBIAN/conffiles"), "/etc/nacre/nacre.toml\n")?;
    let path = folder.join(format!("nacre_{version}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .args(["--root-owner-group", if quick { "-z1" } else { "-z6" }]);
    build.args(["-Zgzip", "--build"]).arg(&root).arg(&path).stdout(std::process::Stdio::null());
    run(&mut build, "make a Debian package (dpkg-deb is needed)")?;
    Ok(path)
}

/// Creates the folder from which an image is built.
fn stage_image(image: &Path, tree: &Path) -> Result<(), String> {
    let root = image.join("root");
    for folder in ["bin", "etc", "tmp"] {
        create(&root.join(folder))?;
    }
    create(&image.join("data"))?;
    mode(&root.join("tmp"), 0o1777)?;
    copy(&tree.join("bin/nacre"), &root.join("bin/nacre"))?;
    write(
        &root.join("etc/passwd"),
        &format!("root:x:0:0:::\nnacre:x:{IMAGE_USER}:{IMAGE_USER}::/data:\n"),
    )?;
    write(&root.join("etc/group"), &format!("root:x:0:\nnacre:x:{IMAGE_USER}:\n"))?;
    copy(&workspace().join("packaging/image"), image)
}

/// Packs a folder so that the same files give the same bytes.
fn archive(tree: &Path, to: &Path, quick: bool) -> Result<(), String> {
    let (Some(parent), Some(name)) = (tree.parent(), tree.file_name()) else {
        return Err("a tree has a name".to_owned());
    };
    let mut pack = Command::new("tar");
    pack.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    pack.arg(format!("--mtime=@{EPOCH}"));
    pack.arg(if quick {
        "--use-compress-program=gzip -n -1"
    } else {
        "--use-compress-program=gzip -n -9"
    });
    pack.arg("-cf").arg(to).arg("-C").arg(parent).arg(name);
    run(&mut pack, "pack an archive (GNU tar and gzip are needed)")
}

/// Writes the checksums of the artefacts in the format of `sha256sum -c`.
fn check_sums(folder: &Path, made: &[PathBuf]) -> Result<(), String> {
    let mut text = String::new();
    for path in made {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("{sum}  {name}\n"));
    }
    write(&folder.join("SHA256SUMS"), &text)?;
    let mut check = Command::new("sha256sum");
    run(check.args(["--check", "--quiet", "SHA256SUMS"]).current_dir(folder), "check the sums")
}

fn size(path: &Path) -> Result<u64, String> {
    let about = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(about.len())
}

fn create(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Copies a file or a folder's content, readable for everybody.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("copy {}: {error}", from.display());
    if !from.is_dir() {
        fs::copy(from, to).map_err(failed)?;
        let is_program = fs::metadata(from).map_err(failed)?.permissions().mode() & 0o100 != 0;
        return mode(to, if is_program { 0o755 } else { 0o644 });
    }
    create(to)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Creates a symbolic link to a file.
fn link(to: &str, at: &Path) -> Result<(), String> {
    symlink(to, at).map_err(|error| format!("{}: {error}", at.display()))
}
