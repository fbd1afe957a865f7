//! `nacre dev`: a node for one person at one machine.
//!
//! The user is `Administrator`, the password `password`, the bucket `default`. Data is in `.nacre/data` of the working directory, beside
//! the file by which other commands in that directory find the node; `--ephemeral` keeps nothing.

use crate::serve::{Serve, run};
use crate::{ports, services};
use clap::Args;
use nacre_cli::contexts::{Context, DEV_FOLDER, write_dev_context};
use nacre_cli::sample::{self, Sample};
use nacre_cluster::Endpoints;
use nacre_links::data_dir;
use nacre_links::process::Process;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const HOST: &str = "127.0.0.1";
const USER: &str = "Administrator";
const PASSWORD: &str = "password";
const BUCKET: &str = "default";

/// Options of `nacre dev`.
#[derive(Args, Clone, Debug)]
pub struct Dev {
    /// Load sample documents, each sample into its own scope; may be given several times
    #[arg(long, value_enum, value_name = "SAMPLE")]
    sample: Vec<Sample>,
    /// Keep no data: uses a temporary folder that is removed at the end
    #[arg(long, conflicts_with = "data_dir")]
    ephemeral: bool,
    /// Directory for data (default: .nacre/data in the working directory)
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Move all ports, as for `serve`
    #[arg(long, env = "NACRE_PORT_BASE", value_name = "N")]
    port_base: Option<u16>,
    /// Directory for compiled plugins (default: nacre/plugins in the user's cache folder)
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

/// Where the data is for as long as the node runs.
struct Data {
    folder: PathBuf,
    /// Folder with the file that names the node to other commands.
    project: Option<&'static Path>,
    is_temporary: bool,
}

impl Data {
    fn of(options: &Dev) -> io::Result<Data> {
        if options.ephemeral {
            let folder = data_dir::temporary()?;
            return Ok(Data { folder, project: None, is_temporary: true });
        }
        if let Some(folder) = options.data_dir.clone() {
            return Ok(Data { folder, project: None, is_temporary: false });
        }
        let project = Path::new(DEV_FOLDER);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(project)?;
        // Nobody means to commit it.
        match std::fs::File::create_new(project.join(".gitignore")) {
            Ok(mut file) => io::Write::write_all(&mut file, b"*\n")?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(Data { folder: project.join("data"), project: Some(project), is_temporary: false })
    }

    /// Sentence about what becomes of the data.
    fn fate(&self) -> String {
        match (self.is_temporary, self.folder.display()) {
            (true, _) => "Ctrl-C stops it and removes its data.".to_owned(),
            (false, folder) => format!("Ctrl-C stops it; its data stays in {folder}."),
        }
    }
}

/// Runs a node for development until `stop` is over, as [`crate::serve()`] does.
///
/// # Errors
/// A sentence for the person who started it.
pub fn dev<S: Future<Output = ()>>(
    options: &Dev,
    process: &'static dyn Process,
    stop: impl FnOnce() -> io::Result<S>,
) -> Result<(), String> {
    let data = Data::of(options)
        .map_err(|error| format!("cannot create a folder for the data: {error}"))?;
    let serve = options_of_node(options, &data)?;
    let mut noted = None;
    let outcome = run(&serve, process, services::all(), stop, |endpoints| {
        noted = announce(options, &data, endpoints);
    });
    if let Some(file) = noted {
        let _ = std::fs::remove_file(file);
    }
    if data.is_temporary {
        let _ = std::fs::remove_dir_all(&data.folder);
    }
    outcome
}

/// Options of the node: those of `nacre serve` with a user and a bucket.
fn options_of_node(options: &Dev, data: &Data) -> Result<Serve, String> {
    let port_base = options.port_base.map(|base| base.to_string());
    let folder = data.folder.to_str().ok_or("the path of the folder for data is not UTF-8")?;
    let mut arguments = vec![
        ("--data-dir", folder),
        ("--host", HOST),
        ("--user", USER),
        ("--password", PASSWORD),
        ("--buckets", BUCKET),
        // Webhooks that are being developed run on the same machine.
        ("--allow-outgoing", "127.0.0.0/8,::1"),
    ];
    arguments.extend(port_base.as_deref().map(|base| ("--port-base", base)));
    let cache = options.plugin_cache.clone().or_else(user_cache);
    let cache = cache
        .as_ref()
        .map(|cache| cache.to_str().ok_or("the path of the cache of plugins is not UTF-8"));
    arguments.extend(cache.transpose()?.map(|cache| ("--plugin-cache", cache)));
    Serve::from_arguments(arguments.into_iter().flat_map(|(name, value)| [name, value]))
}

/// Cache of compiled plugins of the user who runs the node.
fn user_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
    cache.map(|cache| cache.join("nacre/plugins"))
}

/// Loads samples and says how to reach the node. Returns the file that names it to other commands.
fn announce(options: &Dev, data: &Data, endpoints: &Endpoints) -> Option<PathBuf> {
    let url = format!("http://{HOST}:{}", endpoints.plain.mgmt());
    for sample in &options.sample {
        let loaded = nacre_cli::Server::new(&url, USER, PASSWORD)
            .map_err(nacre_cli::Failure::from)
            .and_then(|server| sample::load(&server, BUCKET, *sample));
        match loaded {
            Ok(sentence) => println!("{sentence}"),
            Err(failure) => tracing::warn!("the sample was not loaded: {failure}"),
        }
    }
    let context = Context {
        url,
        user: Some(USER.into()),
        password: Some(PASSWORD.into()),
        ..Context::default()
    };
    let noted = data.project.map(|project| write_dev_context(project, &context));
    let noted = noted.and_then(|noted| {
        noted.inspect_err(|reason| tracing::warn!("other commands need a login: {reason}")).ok()
    });
    println!("nacre is ready");
    for line in ports::banner(services::table(), endpoints) {
        println!("{line}");
    }
    println!("  bucket      {BUCKET}  user  {USER}  password  {PASSWORD}");
    if noted.is_some() {
        println!("Commands in this folder need no login: nacre ping, nacre sh, nacre doc list");
    }
    println!("{}", data.fate());
    noted
}
