//! `nacre sample`: sample documents, which are part of the program.
//!
//! A sample has its own scope in a bucket. Its documents are the same everywhere, so that pages can show answers. Airports,
//! airlines and movies are real; routes, hotels and ratings are computed.

mod movies;
mod travel;

use crate::failure::Failure;
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand, ValueEnum};
use nacre_client::{Key, StoreOptions};
use serde_json::Value;

/// Sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sample {
    /// Airports, airlines, routes and hotels, in the scope travel
    Travel,
    /// Movies and what people gave them, in the scope movies
    Movies,
}

/// The documents of one collection, with their keys.
pub(crate) struct Documents {
    /// The name of the collection.
    collection: &'static str,
    /// The keys and documents.
    documents: Vec<(String, Value)>,
}

impl Sample {
    fn name(self) -> &'static str {
        match self {
            Sample::Travel => "travel",
            Sample::Movies => "movies",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Sample::Travel => "airports, airlines, routes and hotels",
            Sample::Movies => "movies with their ratings",
        }
    }

    fn documents(self) -> Vec<Documents> {
        match self {
            Sample::Travel => travel::documents(),
            Sample::Movies => movies::documents(),
        }
    }
}

/// Options of `nacre sample`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// List the samples
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Load a sample; documents with the same keys are replaced
    Load {
        /// The sample
        sample: Sample,
        /// Bucket
        #[arg(short, long, env = "NACRE_BUCKET", default_value = "default")]
        bucket: String,
    },
}

/// Runs `nacre sample`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    match &options.action {
        Action::List { format } => {
            let mut listing =
                Listing::new(&["sample", "scope", "collections", "documents", "about"]);
            for sample in Sample::value_variants() {
                let documents = sample.documents();
                let count: usize = documents.iter().map(|of| of.documents.len()).sum();
                let collections: Vec<_> = documents.iter().map(|of| of.collection).collect();
                listing.add([
                    sample.name().into(),
                    sample.name().into(),
                    collections.join(",").into(),
                    count.into(),
                    sample.about().into(),
                ]);
            }
            format.show(&listing);
            Ok(())
        }
        Action::Load { sample, bucket } => {
            println!("{}", load(&options.server, bucket, *sample)?);
            Ok(())
        }
    }
}

/// Loads a sample into a bucket. Returns a message about it.
///
/// # Errors
/// The reason, if a collection cannot be created or a document cannot be written.
pub fn load(server: &Server, bucket: &str, sample: Sample) -> Result<String, Failure> {
    let (scope, all) = (sample.name(), sample.documents());
    for documents in &all {
        crate::keyspace::create_collection(server, bucket, scope, documents.collection)?;
    }
    let mut connection = server.bucket(bucket)?;
    let mut count = 0;
    for documents in &all {
        let path = format!("{scope}.{}", documents.collection);
        let collection = connection.collection_id(&path)?;
        for (name, document) in &documents.documents {
            let key = Key { collection, name: name.as_bytes() };
            connection.set(key, document.to_string().as_bytes(), StoreOptions::default())?;
            count += 1;
        }
    }
    let collections: Vec<&str> = all.iter().map(|documents| documents.collection).collect();
    Ok(format!("loaded {count} documents into {bucket}.{scope}: {}", collections.join(", ")))
}

/// Returns the rows of a table as lists of fields.
fn rows(table: &'static str) -> impl Iterator<Item = Vec<String>> {
    let reader = csv::Reader::from_reader(table.as_bytes());
    let records = reader.into_records().map(|record| record.expect("the table is in the program"));
    records.map(|record| record.iter().map(str::to_owned).collect())
}

/// A number generator that returns the same sequence everywhere (an LCG of 64 bits; Knuth, MMIX).
struct Numbers(u64);

impl Numbers {
    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Returns an element of `all`.
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn samples_are_deterministic_and_have_unique_keys() {
        for (sample, expected) in [
            (
                Sample::Travel,
                [("airport", 51), ("airline", 26), ("route", 520), ("hotel", 204)].as_slice(),
            ),
            (Sample::Movies, [("movie", 78), ("rating", 1560)].as_slice()),
        ] {
            let (first, second) = (sample.documents(), sample.documents());
            let counts: Vec<_> =
                first.iter().map(|of| (of.collection, of.documents.len())).collect();
            assert_eq!(counts, expected);
            for (first, second) in first.iter().zip(&second) {
                assert!(first.documents == second.documents);
                let keys: BTreeSet<&str> =
                    first.documents.iter().map(|(key, _)| key.as_str()).collect();
                assert_eq!(keys.len(), first.documents.len(), "{}", first.collection);
            }
        }
    }

    #[test]
    fn a_route_goes_from_one_known_airport_to_another() {
        let all = Sample::Travel.documents();
        let airports: BTreeSet<&str> =
            all[0].documents.iter().map(|(_, airport)| airport["iata"].as_str().unwrap()).collect();
        for (key, route) in &all[2].documents {
            let (from, to) = (route["from"].as_str().unwrap(), route["to"].as_str().unwrap());
            assert!(from != to && airports.contains(from) && airports.contains(to), "{key}");
            assert!((200..20_100).contains(&route["km"].as_u64().unwrap()), "{key}: {route}");
        }
    }
}
