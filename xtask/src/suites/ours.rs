//! The language-neutral cases of this project.

use super::report::{Outcome, Report, Test};
use super::{BUCKET, Prepared};
use nacre_conformance::run::{Target, run};
use xtask_setup::node::{Node, PASSWORD, USER};

/// The cases, which need no installation.
pub(super) struct Cases;

impl Prepared for Cases {
    fn run(&self, node: &Node, nodes: usize) -> Result<Report, String> {
        let target = Target {
            host: "127.0.0.1".into(),
            kv_port: node.kv_port(),
            mgmt_port: node.mgmt_port(),
            views_port: node.views_port(),
            query_port: node.query_port(),
            eventing_port: node.eventing_port(),
            fresh_ports: Vec::new(),
            user: USER.into(),
            password: PASSWORD.into(),
            bucket: BUCKET.into(),
            filter: String::new(),
            run: "suite".into(),
        };
        let outcomes = run(&target, |_| {});
        let tests = outcomes.into_iter().map(|outcome| Test {
            name: format!("{}/{}", outcome.group, outcome.name),
            outcome: outcome.problem.map_or(Outcome::Passed, Outcome::Failed),
        });
        Ok(Report {
            title: "nacre conformance cases".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: "cargo xtask conformance --only ours".into(),
            nodes,
            remarks: Vec::new(),
            is_ours: true,
            tests: tests.collect(),
        })
    }
}
