//! Vectors: their similarity, and their storage in a segment.

mod cluster;
mod code;
mod file;

pub use file::{EXTENSION, VectorFile, VectorPlugin, VectorWriter, Wanted};

use base64::Engine;
use serde_json::Value;

/// The similarity of two vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The squared distance; less is nearer.
    L2,
    /// The dot product; more is nearer.
    Dot,
    /// The dot product of vectors normalised to length 1.
    Cosine,
}

impl Metric {
    /// Returns the metric with a name.
    pub fn parse(name: &str) -> Option<Metric> {
        Some(match name {
            "" | "l2_norm" => Metric::L2,
            "dot_product" => Metric::Dot,
            "cosine" => Metric::Cosine,
            _ => return None,
        })
    }

    /// Returns the score of a vector: the reciprocal of the squared distance, or the dot product.
    pub fn score(self, a: &[f32], b: &[f32]) -> f32 {
        match self {
            Metric::L2 => {
                let distance = sum(a, b, |x, y| (x - y) * (x - y));
                if distance == 0.0 { f32::MAX } else { 1.0 / distance }
            }
            Metric::Dot | Metric::Cosine => dot(a, b),
        }
    }

    /// Prepares a vector for comparisons.
    pub fn prepare(self, vector: &mut [f32]) {
        if self == Metric::Cosine {
            let length = dot(vector, vector).sqrt();
            if length > 0.0 {
                vector.iter_mut().for_each(|number| *number /= length);
            }
        }
    }
}

/// The trade-off between recall and latency in a large segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// The search finds most of the nearest neighbours.
    #[default]
    Recall,
    /// The search compares fewer vectors.
    Latency,
    /// The same as for latency, because vectors in memory always have one byte per number.
    Memory,
}

impl Effort {
    /// Returns the effort with a name.
    pub fn parse(name: &str) -> Option<Effort> {
        Some(match name {
            "" | "recall" => Effort::Recall,
            "latency" => Effort::Latency,
            "memory-efficient" => Effort::Memory,
            _ => return None,
        })
    }

    /// Returns the share of a segment's lists that a search reads.
    pub fn share(self) -> f32 {
        match self {
            Effort::Recall => 0.1,
            Effort::Latency | Effort::Memory => 0.03,
        }
    }
}

/// Returns the dot product of two vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |x, y| x * y)
}

/// Computes eight sums in parallel, which compilers convert into SIMD instructions.
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (mut sums, (a8, rest_a), (b8, rest_b)) =
        ([0.0_f32; 8], a.as_chunks::<8>(), b.as_chunks::<8>());
    for (x, y) in a8.iter().zip(b8) {
        for at in 0..8 {
            sums[at] += term(x[at], y[at]);
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(x, y)| term(*x, *y)).sum();
    sums.iter().sum::<f32>() + rest
}

/// Parses the vectors in a value: one vector, or arrays of vectors up to two levels deep. Returns `None` if an element is not a
/// number, or if a length is wrong.
pub fn parse(value: &Value, dims: usize) -> Option<Vec<Vec<f32>>> {
    let elements = value.as_array()?;
    if elements.first().is_some_and(Value::is_array) {
        return elements.iter().map(|element| numbers(element, dims)).collect();
    }
    Some(vec![numbers(value, dims)?])
}

fn numbers(value: &Value, dims: usize) -> Option<Vec<f32>> {
    let numbers: Vec<f32> = value
        .as_array()?
        .iter()
        .map(|number| {
            number.as_f64().map(|number| number as f32).filter(|number| number.is_finite())
        })
        .collect::<Option<_>>()?;
    (numbers.len() == dims || dims == 0).then_some(numbers)
}

/// Decodes a vector: base64 of little-endian `f32` numbers.
pub fn decode(text: &str) -> Option<Vec<f32>> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    let (numbers, rest) = bytes.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (rest.is_empty() && numbers.iter().all(|number| number.is_finite())).then_some(numbers)
}
