//! Vectors as bytes (SQ8): each number is quantized between the minimum and the maximum of its dimension.

use super::Metric;

/// The largest code.
const CODE_MAX: f32 = 255.0;

/// The quantization of numbers.
pub struct Code {
    /// The smallest number of each dimension.
    pub base: Vec<f32>,
    /// The size of a step in each dimension; 0 if all its numbers are equal.
    pub step: Vec<f32>,
}

impl Code {
    /// Creates the quantization for numbers between the minimum and the maximum of each dimension.
    pub fn between(least: Vec<f32>, greatest: &[f32]) -> Code {
        let step = least.iter().zip(greatest).map(|(low, high)| (high - low) / CODE_MAX).collect();
        Code { base: least, step }
    }

    /// Returns the code of a vector.
    pub fn encode<'a>(&'a self, vector: &'a [f32]) -> impl Iterator<Item = u8> + 'a {
        let of_dimension = self.base.iter().zip(&self.step);
        vector.iter().zip(of_dimension).map(|(number, (base, step))| {
            if *step > 0.0 {
                ((number - base) / step).round().clamp(0.0, CODE_MAX) as u8
            } else {
                0
            }
        })
    }
}

/// A query vector that is compared with codes.
pub struct Asked {
    numbers: Vec<i16>,
    /// The factor of the integer products.
    scale: f32,
    /// The product with the base.
    bias: f32,
    metric: Metric,
}

impl Asked {
    /// Prepares a query vector.
    pub fn new(vector: &[f32], code: &Code, metric: Metric) -> Asked {
        let weights: Vec<f32> = vector.iter().zip(&code.step).map(|(q, step)| q * step).collect();
        let greatest = weights.iter().map(|weight| weight.abs()).fold(0.0, f32::max);
        // This limit keeps the sum of all products within 31 bits.
        let limit = (i32::MAX / (255 * vector.len().max(1) as i32)).min(i32::from(i16::MAX)) as f32;
        let scale = if greatest > 0.0 { limit / greatest } else { 1.0 };
        Asked {
            numbers: weights.iter().map(|weight| (weight * scale) as i16).collect(),
            scale: 1.0 / scale,
            bias: super::dot(vector, &code.base),
            metric,
        }
    }

    /// Returns the approximate nearness of a vector: more is nearer. `square` is the squared length of the vector.
    pub fn nearness(&self, code: &[u8], square: f32) -> f32 {
        let product = self.bias + product(&self.numbers, code) as f32 * self.scale;
        match self.metric {
            Metric::L2 => 2.0 * product - square,
            Metric::Dot | Metric::Cosine => product,
        }
    }
}

/// Computes sixteen sums in parallel, which compilers convert into SIMD instructions.
fn product(numbers: &[i16], code: &[u8]) -> i32 {
    let ((n16, rest_n), (c16, rest_c)) = (numbers.as_chunks::<16>(), code.as_chunks::<16>());
    let mut sums = [0_i32; 16];
    for (numbers, codes) in n16.iter().zip(c16) {
        for at in 0..16 {
            sums[at] += i32::from(numbers[at]) * i32::from(codes[at]);
        }
    }
    let rest: i32 = rest_n.iter().zip(rest_c).map(|(n, c)| i32::from(*n) * i32::from(*c)).sum();
    sums.iter().sum::<i32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_with_a_code_approximates_that_with_the_vector() {
        for dims in [1_usize, 3, 16, 40, 4096] {
            let number = |n: usize| ((n * 7919 % 101) as f32 / 50.0 - 1.0) * (1 + n % 3) as f32;
            let vector: Vec<f32> = (0..dims).map(number).collect();
            let other: Vec<f32> = (0..dims).map(|n| number(n + 17)).collect();
            let least = vector.iter().map(|n| n - 1.0).collect();
            let greatest: Vec<f32> = vector.iter().map(|n| n + 1.5).collect();
            let code = Code::between(least, &greatest);
            let codes: Vec<u8> = code.encode(&vector).collect();
            let exact = crate::vector::dot(&vector, &other);
            let found = Asked::new(&other, &code, Metric::Dot).nearness(&codes, 0.0);
            assert!((exact - found).abs() < 0.02 * dims as f32, "{dims}: {exact} {found}");
        }
    }

    #[test]
    fn a_dimension_with_one_number_has_no_steps() {
        let code = Code::between(vec![2.0, 0.0], &[2.0, 255.0]);
        assert_eq!(code.encode(&[2.0, 7.4]).collect::<Vec<_>>(), [0, 7]);
        assert_eq!(code.encode(&[9.0, -3.0]).collect::<Vec<_>>(), [0, 0], "beyond the least");
        let asked = Asked::new(&[1.0, 0.0], &code, Metric::L2);
        assert_eq!(asked.nearness(&[0, 7], 4.0 + 49.0), 2.0 * 2.0 - 53.0);
    }
}
