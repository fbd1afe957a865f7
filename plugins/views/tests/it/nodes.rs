//! Several partitions of a design document, and a host that queries all of them.

use crate::fixture::*;
use nacre_plugin::{Fault, Request, Response, Service};
use nacre_views::Bounds;
use std::collections::BTreeSet;

pub struct Nodes {
    /// `n0`, `n1`, …. Their headers name their visible vBuckets. The first node merges.
    pub nodes: Vec<Fixture>,
    /// Number of consecutive partitions with the name of the same node.
    pub lanes: usize,
}

/// An answer of several rounds.
#[derive(Debug, PartialEq, Eq)]
pub struct Merged {
    pub status: u16,
    pub body: String,
    /// Number of pieces in each round.
    pub pieces: Vec<usize>,
}

pub fn get(path: &str, query: &str) -> Request {
    Request { method: "GET".into(), path: path.into(), query: query.into(), ..Request::default() }
}

/// Returns the same request with an additional header.
pub fn with_header(request: &Request, name: &str, value: &str) -> Request {
    let mut request = request.clone();
    request.headers.push((name.into(), value.into()));
    request
}

pub fn rest_of(response: &Response) -> Option<&str> {
    let header = response.headers.iter().find(|(name, _)| name == "nacre-rest");
    header.map(|(_, value)| &value[..])
}

impl Nodes {
    pub fn new(config: &str, count: usize, bounds: Bounds) -> Nodes {
        let nodes = (0..count).map(|_| Fixture::new(config).bounded(bounds)).collect();
        Nodes { nodes, lanes: 1 }
    }

    /// Returns the part of every node.
    pub fn parts(&mut self, request: &Request) -> Vec<Response> {
        let parts = self.nodes.iter_mut().enumerate().map(|(number, node)| {
            let from = format!("n{}", number / self.lanes);
            let mut request = with_header(request, "nacre-part", &from);
            request.headers.extend(node.headers.clone());
            let response = node.views.handle(&request, &node.state).unwrap();
            assert_eq!(response.cursor, None, "a part is whole");
            response
        });
        parts.collect()
    }

    /// Runs one round.
    pub fn merge(
        &mut self,
        request: &Request,
        parts: Vec<Response>,
    ) -> Result<(Response, Vec<Vec<u8>>), Fault> {
        let node = &mut self.nodes[0];
        let mut response = node.views.merge(request, parts)?;
        let mut pieces = vec![std::mem::take(&mut response.body)];
        let mut cursor = response.cursor.take();
        while let Some(at) = cursor {
            let chunk = node.views.more(&at, &node.state)?;
            pieces.push(chunk.body);
            cursor = chunk.cursor;
        }
        Ok((response, pieces))
    }

    /// Runs all rounds.
    pub fn ask(&mut self, request: &Request) -> Merged {
        let (mut body, mut pieces, mut rests) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut round = request.clone();
        loop {
            let parts = self.parts(&round);
            let (response, of_round) = self.merge(&round, parts).unwrap();
            pieces.push(of_round.len());
            body.extend(of_round.concat());
            let Some(rest) = rest_of(&response) else {
                let body = String::from_utf8(body).unwrap();
                return Merged { status: response.status, body, pieces };
            };
            assert!(rests.insert(rest.to_owned()), "a round without progress");
            round = with_header(request, "nacre-rest", rest);
        }
    }
}
