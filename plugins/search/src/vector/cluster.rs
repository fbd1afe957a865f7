//! Clusters of vectors, by two-level k-means. They form the lists of an inverted file.
//!
//! ```text
//! sample ─► k-means into √k groups ─► k-means of each group into its share of k ─► centroids
//! ```
//!
//! With two levels, a vector is compared with about 3·√k centroids instead of k. The sandbox can therefore build a segment of 50,000
//! vectors within one call. The same sample always produces the same clusters, so that copies of an index are equal.

use super::dot;

/// Number of k-means rounds on each level.
const ROUNDS: usize = 8;
/// Number of groups whose lists are compared with a vector.
const GROUPS_COMPARED: usize = 2;

/// The centroids of groups and of lists.
pub struct Clusters {
    dims: usize,
    groups: Centroids,
    /// The end of each group in the lists.
    ends: Vec<usize>,
    lists: Centroids,
}

/// A set of centroids.
#[derive(Default)]
pub struct Centroids {
    numbers: Vec<f32>,
    /// The squared length of each centroid.
    squares: Vec<f32>,
}

impl Centroids {
    /// Creates centroids from their concatenated numbers.
    pub fn new(numbers: Vec<f32>, dims: usize) -> Centroids {
        let squares = numbers.chunks_exact(dims).map(|one| dot(one, one)).collect();
        Centroids { numbers, squares }
    }

    /// Returns the number of centroids.
    pub fn len(&self) -> usize {
        self.squares.len()
    }

    /// Returns the concatenated numbers.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// Returns the squared distance of each centroid to a vector, minus the squared length of the vector.
    pub fn distances<'a>(&'a self, vector: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        let centroids = self.numbers.chunks_exact(vector.len());
        centroids.zip(&self.squares).map(|(centroid, square)| square - 2.0 * dot(vector, centroid))
    }

    /// Returns the centroid nearest to a vector.
    fn nearest(&self, vector: &[f32]) -> usize {
        let distances = self.distances(vector).enumerate();
        distances.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(at, _)| at)
    }
}

impl Clusters {
    /// Finds about `count` clusters of the vectors in a sample, which must not be empty.
    pub fn train(sample: &[f32], dims: usize, count: usize) -> Clusters {
        let groups_count = (count as f64).sqrt().round() as usize;
        let groups = k_means(sample, dims, groups_count);
        let mut members: Vec<Vec<f32>> = vec![Vec::new(); groups.len()];
        for vector in sample.chunks_exact(dims) {
            members[groups.nearest(vector)].extend_from_slice(vector);
        }
        let (mut numbers, mut ends) = (Vec::new(), Vec::new());
        for members in members {
            let share = members.len() as f64 / sample.len() as f64 * count as f64;
            if !members.is_empty() {
                numbers.extend(k_means(&members, dims, (share as usize).max(1)).numbers);
            }
            ends.push(numbers.len() / dims);
        }
        Clusters { dims, groups, ends, lists: Centroids::new(numbers, dims) }
    }

    /// Returns the centroids of the lists.
    pub fn lists(&self) -> &Centroids {
        &self.lists
    }

    /// Returns the list of a vector: the nearest list in the nearest groups.
    pub fn list_of(&self, vector: &[f32]) -> usize {
        let mut near: Vec<(usize, f32)> = self.groups.distances(vector).enumerate().collect();
        let compared = GROUPS_COMPARED.min(near.len());
        if compared < near.len() {
            near.select_nth_unstable_by(compared, |(_, a), (_, b)| a.total_cmp(b));
        }
        let mut best = (0, f32::INFINITY);
        for (group, _) in near.into_iter().take(compared) {
            let start = group.checked_sub(1).map_or(0, |before| self.ends[before]);
            for list in start..self.ends[group] {
                let centroid = &self.lists.numbers[list * self.dims..(list + 1) * self.dims];
                let distance = self.lists.squares[list] - 2.0 * dot(vector, centroid);
                if distance < best.1 {
                    best = (list, distance);
                }
            }
        }
        best.0
    }
}

/// Returns the centroids of up to `count` clusters of points, of which there must be at least one.
fn k_means(points: &[f32], dims: usize, count: usize) -> Centroids {
    let points_count = points.len() / dims;
    let count = count.clamp(1, points_count);
    let point = |at: usize| &points[at * dims..(at + 1) * dims];
    let mut chance = Chance(count as u64);
    // The initial centroids are random points, because consecutive points may be similar.
    let mut order: Vec<usize> = (0..points_count).collect();
    for at in 0..count {
        order.swap(at, at + chance.below(points_count - at));
    }
    let first = order[..count].iter().flat_map(|at| point(*at).iter().copied()).collect();
    let mut centroids = Centroids::new(first, dims);
    for _ in 0..ROUNDS {
        let (mut sums, mut counts) = (vec![0.0_f32; count * dims], vec![0_u32; count]);
        for vector in points.chunks_exact(dims) {
            let nearest = centroids.nearest(vector);
            counts[nearest] += 1;
            let sum = &mut sums[nearest * dims..(nearest + 1) * dims];
            sum.iter_mut().zip(vector).for_each(|(sum, number)| *sum += number);
        }
        for (sum, members) in sums.chunks_exact_mut(dims).zip(&counts) {
            match members {
                // An empty cluster restarts at a random point.
                0 => sum.copy_from_slice(point(chance.below(points_count))),
                members => sum.iter_mut().for_each(|number| *number /= *members as f32),
            }
        }
        centroids = Centroids::new(sums, dims);
    }
    centroids
}

/// A pseudo-random sequence that a seed determines (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_around_a_few_centers_are_in_the_lists_of_these_centers() {
        let places = [[0.0_f32, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]];
        let sample: Vec<f32> = (0..400)
            .flat_map(|n| {
                let place = places[n % 4];
                [place[0] + (n % 7) as f32 * 0.01, place[1] + (n % 5) as f32 * 0.01]
            })
            .collect();
        let clusters = Clusters::train(&sample, 2, 16);
        assert!((4..=20).contains(&clusters.lists().len()), "{}", clusters.lists().len());
        for place in places {
            let list = clusters.list_of(&place);
            let centroid = &clusters.lists().numbers()[2 * list..2 * list + 2];
            let distance = (centroid[0] - place[0]).hypot(centroid[1] - place[1]);
            assert!(distance < 1.0, "{place:?} is in a list around {centroid:?}");
        }
    }

    #[test]
    fn few_points_or_equal_ones_make_clusters_too() {
        assert_eq!(Clusters::train(&[1.0, 2.0], 2, 100).lists().len(), 1);
        let equal = Clusters::train(&[3.0; 200], 2, 9);
        assert!(equal.lists().numbers().iter().all(|number| *number == 3.0));
        assert!(equal.list_of(&[3.0, 3.0]) < equal.lists().len());
    }
}
