//! Tests of the artefacts.

use super::{copy, create, link, mode};
use crate::readme;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask_setup::command::{output, run};

/// Time limit from the archive to the answer of the first query.
const START_MAX: Duration = Duration::from_secs(60);
/// Maximum exposure in systemd's rating, of 100.
const EXPOSURE_MAX: &str = "20";
/// Ports of the node in the chroot.
const PORT_BASE: &str = "19600";

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

/// Checks the package: its content, and that its program runs.
///
/// # Errors
/// Fails when a file is missing, or the program does not start.
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
    match shown.contains("data-dir = \"/var/lib/nacre\"") {
        true => Ok(()),
        false => Err(format!("the configuration of the package does not count:\n{shown}")),
    }
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
    let install = |arguments: &[&str]| {
        let mut command = Command::new(tree.join("install.sh"));
        command.args(arguments).env("PREFIX", home);
        output(&mut command, "run install.sh")
    };
    let said = install(&[])?;
    if !said.contains("installed nacre ") {
        return Err(format!("install.sh says {said}"));
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
