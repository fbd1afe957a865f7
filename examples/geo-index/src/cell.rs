//! Geohashes: the bits of longitude and latitude alternate, five per letter. Places in one cell have a common prefix.
//!
//! ```text
//! letters  1      2      3     4     5     6     7     8      12
//! width    5000   1250   156   39    4.9   1.2   0.15  0.04   km, at the equator
//! height   5000   625    156   20    4.9   0.6   0.15  0.02   km
//! ```

/// The letters for five bits each, in order.
const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// Number of letters of a key.
const KEY_LETTERS: u32 = 12;
/// Kilometres per degree of latitude, below the minimum anywhere.
const DEGREE_KM: f64 = 110.5;

/// A point of the Earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// From -90 in the south to 90.
    pub lat: f64,
    /// From -180 in the west to 180, which is the same meridian.
    pub lon: f64,
}

impl Place {
    /// Returns the place, unless it is invalid.
    pub fn new(lat: f64, lon: f64) -> Option<Place> {
        let is_one = (-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lon);
        is_one.then_some(Place { lat, lon })
    }
}

/// A cell among those of its size.
#[derive(Clone, Copy)]
struct Cell {
    letters: u32,
    /// Counted from the west.
    column: u64,
    /// Counted from the south.
    row: u64,
}

impl Cell {
    fn of(place: Place, letters: u32) -> Cell {
        let (columns, rows) = sizes(letters);
        let at = |part: f64, count: u64| (part * count as f64) as u64;
        Cell {
            letters,
            // The last meridian is the first one.
            column: at((place.lon + 180.0) / 360.0, columns) % columns,
            row: at((place.lat + 90.0) / 180.0, rows).min(rows - 1),
        }
    }

    fn name(self) -> String {
        let bits = 5 * self.letters;
        let mut name = Vec::new();
        let (mut letter, mut column_bits, mut row_bits) = (0, bits.div_ceil(2), bits / 2);
        for bit in 0..bits {
            let (from, left) = match bit % 2 {
                0 => (self.column, &mut column_bits),
                _ => (self.row, &mut row_bits),
            };
            *left -= 1;
            letter = letter << 1 | (from >> *left & 1) as usize;
            if bit % 5 == 4 {
                name.push(char::from(LETTERS[letter]));
                letter = 0;
            }
        }
        name.into_iter().collect()
    }
}

/// Returns the numbers of columns and rows of cells.
fn sizes(letters: u32) -> (u64, u64) {
    let bits = 5 * letters;
    (1 << bits.div_ceil(2), 1 << (bits / 2))
}

/// Returns the key of a place in the index.
pub fn key(place: Place) -> String {
    Cell::of(place, KEY_LETTERS).name()
}

/// Returns the key prefixes of all places within `radius_km` of a place: at most nine cells.
pub fn around(place: Place, radius_km: f64) -> Vec<String> {
    let reach_lat = radius_km / DEGREE_KM;
    // Circles of latitude are shorter near a pole.
    let farthest = (place.lat.abs() + reach_lat).min(90.0).to_radians();
    let reach_lon = reach_lat / farthest.cos().max(f64::EPSILON);
    let fits = |letters: &u32| {
        let (columns, rows) = sizes(*letters);
        reach_lon <= 360.0 / columns as f64 && reach_lat <= 180.0 / rows as f64
    };
    let letters = (1..=KEY_LETTERS).rev().find(fits).unwrap_or(0);
    let (center, (columns, rows)) = (Cell::of(place, letters), sizes(letters));
    let mut names = Vec::new();
    for row in center.row.saturating_sub(1)..=(center.row + 1).min(rows - 1) {
        for column in [columns - 1, 0, 1].map(|step| (center.column + step) % columns) {
            names.push(Cell { letters, column, row }.name());
        }
    }
    names.sort();
    names.dedup();
    names
}
