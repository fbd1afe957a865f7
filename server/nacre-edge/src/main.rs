//! `nacre-edge`: see the library of the same name.

use clap::Parser;
use nacre_edge::{Options, run};
use std::io;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Catches SIGINT and SIGTERM from now on. The future is ready when one of them arrives.
fn stop_signals() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    let scheme = options.scheme();
    let ready = |address| eprintln!("nacre-edge serves {scheme}://{address}; stop it with Ctrl-C");
    match run(&options, stop_signals, ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("nacre-edge: {reason}");
            ExitCode::FAILURE
        }
    }
}
