//! A node in this process, with the bucket that gateways sync with.

use crate::gateway::until;
use nacre_conformance::http::{Answer, request};
use nacre_server::{Embedded, Serve, serve};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

const USER: &str = "Administrator";
const PASSWORD: &str = "password";
/// Number of ports of a node.
const PORTS: u16 = 20;
/// The next port, below those that the system gives to connections and above those of other tests.
static NEXT_PORT: AtomicU16 = AtomicU16::new(26_000);

pub struct Node {
    pub port_base: u16,
    _data: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

fn port_base() -> u16 {
    loop {
        let base = NEXT_PORT.fetch_add(PORTS, Ordering::Relaxed);
        assert!(base < 32_000, "no ports are left for another node");
        if (base..base + PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

impl Node {
    /// Starts a node with the collection `shop.orders` and a user `devices` who may sync it.
    pub fn start() -> Node {
        let data = tempfile::tempdir().unwrap();
        let (data_dir, port_base) = (data.path().display().to_string(), port_base());
        let shared = || std::env::temp_dir().join("nacre-test-plugins").display().to_string();
        let cache = std::env::var("NACRE_PLUGIN_CACHE").unwrap_or_else(|_| shared());
        let options = Serve::from_arguments([
            "--data-dir",
            &data_dir,
            "--port-base",
            &port_base.to_string(),
            "--plugin-cache",
            &cache,
            "--password",
            PASSWORD,
            "--buckets",
            "default",
        ]);
        let options = options.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            serve(&options, &Embedded, move || Ok(async move { drop(stopped.await) }))
        });
        let node = Node { port_base, _data: data, stop: Some(stop), thread: Some(thread) };
        until("the node", || {
            let bucket = node.try_rest("GET", "/pools/default/buckets/default", "").ok()?;
            assert!(!node.thread.as_ref().unwrap().is_finished(), "the node has ended");
            (bucket.status == 200).then_some(())
        });
        let scopes = "/pools/default/buckets/default/scopes";
        assert_eq!(node.rest("POST", scopes, "name=shop").status, 200);
        let collections = format!("{scopes}/shop/collections");
        assert_eq!(node.rest("POST", &collections, "name=orders").status, 200);
        let user = "password=secret&roles=data_sync[default:shop:orders]";
        assert_eq!(node.rest("PUT", "/settings/rbac/users/local/devices", user).status, 200);
        node
    }

    fn try_rest(&self, method: &str, path: &str, form: &str) -> std::io::Result<Answer> {
        let address = format!("127.0.0.1:{}", self.port_base);
        let kind = match path.starts_with("/api") {
            true => "application/json",
            false => "application/x-www-form-urlencoded",
        };
        request(&address, method, path, Some((USER, PASSWORD)), kind, form.as_bytes())
    }

    pub fn rest(&self, method: &str, path: &str, form: &str) -> Answer {
        self.try_rest(method, path, form).unwrap()
    }

    /// Returns the options of a gateway that syncs with this node.
    pub fn upstream(&self) -> Vec<String> {
        let url = format!("http://127.0.0.1:{}/default", self.port_base);
        let options = ["--upstream", &url, "--upstream-user", "devices", "--upstream-password"];
        let options = options.iter().chain(&["secret", "--collections", "shop.orders"]);
        options.map(|option| (*option).to_owned()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
