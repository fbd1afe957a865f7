//! Costs of operators. The unit is the cost of reading one index entry.
//!
//! The numbers are chosen, not measured: see decision 0086. They need not be exact, because plans whose estimates differ by less
//! are about equally good.

/// Reads an index entry.
const ENTRY: f64 = 1.0;
/// Reads a document by its ID.
const FETCH: f64 = 3.0;
/// Reads the next document of a keyspace scan.
const NEXT_DOCUMENT: f64 = 2.5;
/// Starts a scan: one request to each partition and its response.
const BEGIN: f64 = 40.0;
/// Tests a condition.
const TEST: f64 = 0.5;
/// Inserts a row into the table of a hash join, and looks one up.
const BUILD: f64 = 1.5;
const PROBE: f64 = 1.0;
/// Compares two rows in a sort.
const COMPARE: f64 = 0.3;
/// Size of an index entry in bytes.
const ENTRY_BYTES: f64 = 32.0;

/// Estimated cost and row count of an operator, including the operators that it reads from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Cost of all rows.
    pub cost: f64,
    /// Number of rows.
    pub cardinality: f64,
    /// Cost of the first row.
    pub first_row: f64,
    /// Size of a row in bytes.
    pub bytes: f64,
}

impl Estimate {
    /// Returns the estimate of a filter that keeps `share` of the rows.
    #[must_use]
    pub fn filtered(self, share: f64) -> Estimate {
        let cost = self.cost + self.cardinality * TEST;
        let cardinality = self.cardinality * share;
        Estimate { cost, cardinality, first_row: self.first_row + TEST, ..self }
    }

    /// Returns the estimate of sorting the rows.
    #[must_use]
    pub fn sorted(self) -> Estimate {
        let cost = self.cost + self.cardinality * self.cardinality.max(2.0).log2() * COMPARE;
        // A sort returns its first row only after it has read the last one.
        Estimate { cost, first_row: cost, ..self }
    }

    /// Returns the cost of the first `rows` rows if the operator returns rows one by one.
    pub fn cost_of_first(&self, rows: f64) -> f64 {
        let share = (rows / self.cardinality.max(1.0)).min(1.0);
        self.first_row + (self.cost - self.first_row).max(0.0) * share
    }
}

/// The part of an index that a scan reads.
#[derive(Clone, Copy, Debug)]
pub struct IndexCost {
    /// Entries that are read.
    pub entries: f64,
    /// Entries whose documents are in the result.
    pub found: f64,
    /// Size of a document in bytes.
    pub document_bytes: f64,
}

impl IndexCost {
    /// Returns the estimate of the scan without fetching documents.
    pub fn scan(&self) -> Estimate {
        let first_row = BEGIN + ENTRY;
        let cost = BEGIN + self.entries * ENTRY;
        Estimate { cost, cardinality: self.found, first_row, bytes: ENTRY_BYTES }
    }

    /// Returns the estimate of the scan with fetching the documents found.
    pub fn fetched(&self) -> Estimate {
        let scan = self.scan();
        Estimate {
            cost: scan.cost + self.found * FETCH,
            first_row: scan.first_row + FETCH,
            bytes: self.document_bytes,
            ..scan
        }
    }
}

/// Returns the estimate of scanning a whole keyspace.
pub fn sequential(documents: f64, document_bytes: f64) -> Estimate {
    let cost = BEGIN + documents * NEXT_DOCUMENT;
    let first_row = BEGIN + NEXT_DOCUMENT;
    Estimate { cost, cardinality: documents, first_row, bytes: document_bytes }
}

/// Returns the estimate of reading documents by their IDs.
pub fn of_keys(keys: f64, document_bytes: f64) -> Estimate {
    let cost = keys * FETCH;
    Estimate { cost, cardinality: keys, first_row: FETCH, bytes: document_bytes }
}

/// Returns the estimate of a join that looks up the right side for each row of the left side; `right` is the estimate for one
/// row.
pub fn lookup_join(left: Estimate, right: Estimate, cardinality: f64) -> Estimate {
    Estimate {
        cost: left.cost + left.cardinality * right.cost,
        cardinality,
        first_row: left.first_row + right.first_row,
        bytes: left.bytes + right.bytes,
    }
}

/// Returns the estimate of a join that builds a hash table of the right side and probes it with each row of the left side.
pub fn hash_join(left: Estimate, right: Estimate, cardinality: f64) -> Estimate {
    let built = right.cost + right.cardinality * BUILD;
    Estimate {
        cost: left.cost + built + left.cardinality * PROBE + cardinality * TEST,
        cardinality,
        first_row: left.first_row + built + PROBE,
        bytes: left.bytes + right.bytes,
    }
}

/// Returns the estimate of a join that compares each row of the left side with each row of the right side.
pub fn loop_join(left: Estimate, right: Estimate, cardinality: f64) -> Estimate {
    Estimate {
        cost: left.cost + right.cost + left.cardinality * right.cardinality * TEST,
        cardinality,
        first_row: left.first_row + right.cost + TEST,
        bytes: left.bytes + right.bytes,
    }
}
