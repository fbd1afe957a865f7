//! Tests of the artefacts.

use super::{copy, create, link, mode};
use crate::readme;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask_setup::command::{output, run};
use xtask_setup::node::{self, PASSWORD};

/// Time limit from the archive to the answer of the first query.
const START_MAX: Duration = Duration::from_secs(60);
/// Maximum exposure in systemd's rating, of 100.
const EXPOSURE_MAX: &str = "20";
/// Ports of the node in the chroot.
const PORT_BASE: &str = "19600";
/// Ports of the node of the package, and of the image.
const PACKAGE_PORT_BASE: &str = "19660";
const IMAGE_PORT_BASE: &str = "19680";

/// Unpacks the archive into an empty folder and runs the first commands of the README with that folder as the root of the file
/// system.
///
/// # Errors
/// Fails when a line fails, or takes too long.
pub fn in_empty_root(archive: &Path, root: &Path, has_libraries: bool) -> Result<(), String> {
    let begun = Instant::now();
    for folder in ["bin", "work", "tmp", "home"] {
        create(&root.join(folder))?;
    }
    mode(&root.join("tmp"), 0o1777)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(archive).args(["--strip-components=1", "-C"]).arg(root);
    run(&mut unpack, "unpack the archive")?;
    if has_libraries {
        add_libraries(root)?;
    }
    let commands = readme::first_commands()?;
    let script = format!(
        // In the background it replaces the shell, so that the shell's signal reaches it.
        "nacre() {{ local run=; [ $BASHPID = $$ ] || run=exec\n\
         $run env -i HOME=/home NACRE_PORT_BASE={PORT_BASE} NACRE_LOG=warn \\\n\
         unshare --map-root-user --root='{}' --wd=/work /bin/nacre \"$@\"; }}\n\
         trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT\n{commands}\n",
        root.display()
    );
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", &script]).stdin(std::process::Stdio::null());
    let printed = output(&mut shell, "run the first lines of the README in an empty root")?;
    let expected = readme::first_answers()?;
    for line in expected.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !printed.contains(line) {
            return Err(format!("the README promises\n{line}\nbut the chroot prints\n{printed}"));
        }
    }
    let elapsed = begun.elapsed();
    println!("empty root: first document and first query after {:.1} s", elapsed.as_secs_f64());
    match elapsed <= START_MAX {
        true => Ok(()),
        false => Err(format!("that is more than {} s", START_MAX.as_secs())),
    }
}

/// Copies the libraries that a dynamic binary loads.
fn add_libraries(root: &Path) -> Result<(), String> {
    let listed = output(Command::new("ldd").arg(root.join("bin/nacre")), "list libraries")?;
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.map(Path::new) {
        let to = root.join(path.strip_prefix("/").unwrap_or(path));
        create(to.parent().unwrap_or(root))?;
        let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        copy(&real, &to)?;
        mode(&to, 0o755)?;
    }
    Ok(())
}

/// Checks the package: its content, and that its program serves with its configuration.
///
/// # Errors
/// Fails when a file is missing, or the node does not work.
pub fn package(package: &Path, root: &Path) -> Result<(), String> {
    create(root)?;
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(root), "unpack the package")?;
    for file in [
        "usr/bin/nacre",
        "usr/share/man/man1/nacre.1",
        "usr/share/man/man1/nacre-serve.1",
        "usr/share/bash-completion/completions/nacre",
        "etc/nacre/nacre.toml",
        "usr/lib/systemd/system/nacre.service",
    ] {
        if !root.join(file).is_file() {
            return Err(format!("{} has no {file}", package.display()));
        }
    }
    let mut nacre = Command::new(root.join("usr/bin/nacre"));
    nacre.args(["serve", "--print-config", "--config"]).arg(root.join("etc/nacre/nacre.toml"));
    let shown = output(&mut nacre, "read the configuration of the package")?;
    if !shown.contains("data-dir = \"/var/lib/nacre\"") {
        return Err(format!("the configuration of the package does not count:\n{shown}"));
    }
    let mut serve = Command::new(root.join("usr/bin/nacre"));
    serve.args(["serve", "--config"]).arg(root.join("etc/nacre/nacre.toml"));
    serve.arg("--data-dir").arg(root.join("data")).args(["--buckets", "default"]);
    serve.env("NACRE_PLUGIN_CACHE", node::aot_dir()?);
    works(&mut serve, &root.join("usr/bin/nacre"), PACKAGE_PORT_BASE)
}

/// Starts a node, waits until it is ready, writes and reads a document with `program`, and stops the node as a supervisor does.
fn works(serve: &mut Command, program: &Path, port_base: &str) -> Result<(), String> {
    serve.env("NACRE_PORT_BASE", port_base).env("NACRE_PASSWORD", PASSWORD);
    serve.env("NACRE_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = serve.spawn().map_err(|error| format!("start a node: {error}"))?;
    let client = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("NACRE_PASSWORD", PASSWORD);
        command.env("NACRE_URL", format!("http://127.0.0.1:{port_base}"));
        output(&mut command, &format!("run nacre {}", arguments.join(" ")))
    };
    let used = client(&["ping", "--wait", "120"])
        .and_then(|_| client(&["health", "--ready"]))
        .and_then(|_| client(&["doc", "set", "a", "{\"n\": 7}"]))
        .and_then(|_| client(&["doc", "get", "a"]));
    let _ = Command::new("kill").arg(process.id().to_string()).status();
    let ended = process.wait().map_err(|error| format!("stop a node: {error}"))?;
    match used? {
        read if read != "{\"n\": 7}\n" => Err(format!("the node returned {read:?}")),
        _ if !ended.success() => Err(format!("the node ended with {ended}")),
        _ => Ok(()),
    }
}

/// Checks that the image builds without a network, and runs its command in its root with its variables. If Docker, Podman or Buildah
/// is installed, it builds the image.
///
/// # Errors
/// Fails when the file for the image needs more than its folder has, or its node does not work.
pub fn image(image: &Path, root: &Path, has_libraries: bool) -> Result<(), String> {
    let file = image.join("Dockerfile");
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut variables = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("RUN" | "ADD") => return Err(format!("the image needs more than files: {line}")),
            Some("FROM") if words.next() != Some("scratch") => {
                return Err(format!("the image needs another image: {line}"));
            }
            Some("COPY") => {
                let from = words.find(|word| !word.starts_with("--")).unwrap_or_default();
                if !image.join(from).exists() {
                    return Err(format!("the image needs {from}, which its folder does not have"));
                }
            }
            Some("ENV") => variables.extend(words.filter_map(|word| word.split_once('='))),
            _ => {}
        }
    }
    if variables.is_empty() {
        return Err("the image sets no variables".to_owned());
    }
    copy(&image.join("root"), root)?;
    create(&root.join("data"))?;
    if has_libraries {
        add_libraries(root)?;
    }
    let mut serve = Command::new("unshare");
    serve.arg("--map-root-user").arg(format!("--root={}", root.display()));
    serve.args(["--wd=/data", "/bin/nacre", "serve"]).env_clear();
    serve.env("PATH", std::env::var_os("PATH").unwrap_or_default()).envs(variables);
    serve.env("NACRE_BUCKETS", "default");
    works(&mut serve, &image.join("root/bin/nacre"), IMAGE_PORT_BASE)?;
    for builder in ["docker", "podman", "buildah"] {
        // A client of Docker without its daemon cannot build.
        let described = Command::new(builder).arg("info").output();
        if described.is_ok_and(|output| output.status.success()) {
            let mut build = Command::new(builder);
            build.args(["build", "--network", "none", "--tag", "nacre-trial", "."]);
            return run(build.current_dir(image), &format!("build the image with {builder}"));
        }
    }
    println!(
        "the image was not built: neither docker, podman nor buildah works here; its root works"
    );
    Ok(())
}

/// Installs from the unpacked archive, over an older version, and uninstalls.
///
/// # Errors
/// Fails when a step fails.
pub fn installer(tree: &Path, home: &Path) -> Result<(), String> {
    let bin = home.join("bin");
    create(&bin)?;
    // Installation replaces existing files, also links.
    link("/bin/true", &bin.join("nacre"))?;
    // The path finds another version first.
    let others = home.join("others");
    create(&others)?;
    let other = others.join("nacre");
    std::fs::write(&other, "#!/bin/sh\necho nacre 0.1.0\n")
        .map_err(|error| format!("{}: {error}", other.display()))?;
    mode(&other, 0o755)?;
    let path = format!("{}:{}", others.display(), std::env::var("PATH").unwrap_or_default());
    let install = |arguments: &[&str]| {
        let mut command = Command::new(tree.join("install.sh"));
        command.args(arguments).env("PREFIX", home).env("PATH", &path);
        output(&mut command, "run install.sh")
    };
    let said = install(&[])?;
    let advice = format!("export PATH=\"{}:$PATH\"", bin.display());
    let first = format!("another one first: {} (nacre 0.1.0)", other.display());
    for expected in ["installed nacre ", &first, &advice] {
        if !said.contains(expected) {
            return Err(format!("install.sh does not say {expected:?} but {said}"));
        }
    }
    let version =
        output(Command::new(bin.join("nacre")).arg("--version"), "run the installed program")?;
    if !version.starts_with("nacre ") {
        return Err(format!("the installed program reports {version}"));
    }
    install(&["--uninstall"])?;
    let left: Vec<PathBuf> = [bin.join("nacre"), home.join("share/man/man1/nacre.1")]
        .into_iter()
        .filter(|path| path.exists())
        .collect();
    if left.is_empty() { Ok(()) } else { Err(format!("--uninstall leaves {left:?}")) }
}

/// Installs onto a disk that is too small for the program: the installer says so, and the old program stays.
///
/// # Errors
/// Fails when the installer succeeds, removes the old program or leaves a part of the new one.
pub fn full_disk(tree: &Path, disk: &Path) -> Result<(), String> {
    create(disk)?;
    let script = r#"mount -t tmpfs -o size=1m tmpfs "$2" && mkdir "$2/bin" && printf '#!/bin/sh\necho old\n' > "$2/bin/nacre" \
        && chmod 755 "$2/bin/nacre" && { PREFIX="$2" "$1/install.sh" 2>&1 || echo "status $?"; "$2/bin/nacre"; ls "$2/bin"; }"#;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(tree).arg(disk);
    let said = output(&mut command, "install onto a full disk")?;
    for expected in ["is the disk full?", "PREFIX=", "status 1\nold\nnacre\n"] {
        if !said.contains(expected) {
            return Err(format!(
                "on a full disk, {expected:?} is not in what install.sh says:\n{said}"
            ));
        }
    }
    match said.contains("nacre.new\n") {
        true => Err(format!("install.sh leaves a part of the program:\n{said}")),
        false => Ok(()),
    }
}

/// Lets systemd check the unit, if systemd is installed.
///
/// # Errors
/// Fails when the unit is more exposed than allowed.
pub fn unit(unit: &Path) -> Result<(), String> {
    let mut look = Command::new("systemd-analyze");
    look.args(["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX]).arg(unit);
    match look.output() {
        Err(_) => {
            println!("the unit was not checked: there is no systemd-analyze");
            Ok(())
        }
        Ok(looked) if looked.status.success() => Ok(()),
        Ok(looked) => Err(format!(
            "systemd finds {} too exposed:\n{}{}",
            unit.display(),
            String::from_utf8_lossy(&looked.stdout),
            String::from_utf8_lossy(&looked.stderr)
        )),
    }
}
