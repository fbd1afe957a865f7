//! A PostgreSQL for comparison: a new cluster in a temporary folder, run on the first processor by an unprivileged user.

use super::ON_FIRST;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Settings that differ from the package's defaults: enough memory for all records, as on the other side.
pub const SETTINGS: [&str; 2] = ["shared_buffers=1GB", "max_wal_size=4GB"];
/// The owner of the database.
pub const USER: &str = "postgres";
const MISSING: &str =
    "PostgreSQL does not run: apt-get install postgresql util-linux, and start no cluster";
/// Users that may own a cluster, because PostgreSQL refuses to run as root.
const OWNERS: [&str; 2] = ["postgres", "nobody"];

/// A running server, which ends and is removed when this value is dropped.
pub struct Postgres {
    child: Child,
    folder: PathBuf,
    port: u16,
    version: String,
}

/// A user that a process can run as.
#[derive(Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl Postgres {
    /// Creates a cluster and starts it on `port`.
    ///
    /// # Errors
    /// Reports what is missing, and the packages that contain it.
    pub fn start(port: u16) -> Result<Postgres, String> {
        let programs = programs().ok_or(MISSING)?;
        let owner = owner()?;
        let folder = std::env::temp_dir().join(format!("nacre-postgres-{}", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        if let Some(Owner { user, group }) = owner {
            chown(&folder, Some(user), Some(group)).map_err(failed)?;
        }
        let mut make = owned(&programs.join("initdb"), owner);
        make.args(["--auth", "trust", "--username", USER, "--locale", "C", "--encoding", "UTF8"]);
        make.arg("--pgdata").arg(&folder);
        let made = make.output().map_err(|_| MISSING)?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)));
        }
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).map_err(failed)?;
        let server = programs.join("postgres");
        let version = Command::new(&server).arg("--version").output().map_err(|_| MISSING)?.stdout;
        let mut run = owned(Path::new(ON_FIRST[0]), owner);
        run.args(&ON_FIRST[1..]).arg(server).arg("-D").arg(&folder);
        run.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        run.args(["-c", "unix_socket_directories="]);
        run.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let child = run.spawn().map_err(|_| MISSING)?;
        let version = String::from_utf8_lossy(&version).trim().to_owned();
        let mut postgres = Postgres { child, folder, port, version };
        postgres.wait()?;
        Ok(postgres)
    }

    fn wait(&mut self) -> Result<(), String> {
        for _ in 0..1000 {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return Err(MISSING.into());
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("PostgreSQL does not answer on port {}", self.port))
    }

    /// Returns the version that it reports.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the options that make `nacre bench ycsb` use it.
    pub fn target(&self) -> Vec<String> {
        let server = format!("127.0.0.1:{}", self.port);
        let options = ["--protocol", "postgres", "--server", &server, "--user", USER];
        options.into_iter().chain(["--bucket", "postgres"]).map(str::to_owned).collect()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SAFETY: kill takes only numbers, and the process is a child that was not waited for. It ends its own children.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the folder of its programs: in the search path, or where Debian installs the newest version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.into_iter().find(|folder| folder.join("initdb").is_file())
}

/// Returns the owner of the cluster; `None` if the present user is not root.
fn owner() -> Result<Option<Owner>, String> {
    // SAFETY: the function takes and changes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(None);
    }
    let users =
        std::fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    let find = |name: &str| {
        let line = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut numbers = line.split(':').skip(1).map(str::parse);
        let (user, group) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Owner { user, group })
    };
    let found = OWNERS.iter().find_map(|name| find(name));
    found
        .map(Some)
        .ok_or_else(|| "PostgreSQL refuses to run as root: there is no other user".into())
}

fn owned(program: &Path, owner: Option<Owner>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(Owner { user, group }) = owner {
        command.uid(user).gid(group);
    }
    command
}
