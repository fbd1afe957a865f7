//! Queries that the host runs.

use crate::{Queries, Refused};

/// The queries of the capability `query`. Outside of the sandbox they fail.
pub struct HostQueries;

#[cfg(target_arch = "wasm32")]
mod asked {
    use super::{HostQueries, Queries, Refused};
    use nacre_plugin::bindings::world::nacre::plugin::query as abi;

    fn refused(failure: abi::Failure) -> Refused {
        Refused { code: failure.code, message: failure.message }
    }

    impl Queries for HostQueries {
        fn begin(&mut self, statement: &str, parameters: &str) -> Result<u32, Refused> {
            let (text, parameters) = (statement.to_owned(), parameters.to_owned());
            abi::begin(&abi::Statement { text, parameters, is_fresh: false }).map_err(refused)
        }

        fn next(&mut self, query: u32) -> Result<Vec<String>, Refused> {
            abi::next(query).map_err(refused)
        }

        fn close(&mut self, query: u32) {
            abi::close(query);
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl Queries for HostQueries {
    fn begin(&mut self, _: &str, _: &str) -> Result<u32, Refused> {
        Err(Refused { code: 5000, message: "there are no queries here".into() })
    }

    fn next(&mut self, _: u32) -> Result<Vec<String>, Refused> {
        Ok(Vec::new())
    }

    fn close(&mut self, _: u32) {}
}
