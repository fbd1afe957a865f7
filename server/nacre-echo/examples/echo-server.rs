//! A server with one more service: its row in the registry is all that it takes.

use clap::Parser;
use nacre_echo::Echo;
use nacre_server::{Embedded, Serve};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    serve: Serve,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut services = nacre_server::services();
    services.push(Arc::<Echo>::default());
    let stop = || Ok(std::future::pending::<()>());
    match nacre_server::serve_with(&arguments.serve, &Embedded, services, stop) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
