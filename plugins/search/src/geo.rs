//! Geography: points, distances, polygons and shapes, in degrees.

mod shape;

pub use shape::Shape;

use crate::error::{Error, Result};
use serde_json::Value;

/// Units of length, in metres.
const UNITS: [(&str, f64); 21] = [
    ("in", 0.0254),
    ("inch", 0.0254),
    ("yd", 0.9144),
    ("yards", 0.9144),
    ("ft", 0.3048),
    ("feet", 0.3048),
    ("km", 1000.0),
    ("kilometers", 1000.0),
    ("nm", 1852.0),
    ("nauticalmiles", 1852.0),
    ("mm", 0.001),
    ("millimeters", 0.001),
    ("cm", 0.01),
    ("centimeters", 0.01),
    ("mi", 1609.344),
    ("miles", 1609.344),
    ("m", 1.0),
    ("meters", 1.0),
    ("inches", 0.0254),
    ("mile", 1609.344),
    ("", 1.0),
];

/// A circle: a point and a radius.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The longitude.
    pub lon: f64,
    /// The latitude.
    pub lat: f64,
    /// The maximum distance from the point.
    pub metres: f64,
}

/// A polygon in the plane of longitudes and latitudes.
#[derive(Clone, Debug)]
pub struct Polygon {
    points: Vec<(f64, f64)>,
}

impl Polygon {
    /// Creates the polygon with these vertices as `(longitude, latitude)`; an edge joins the last vertex to the first.
    #[must_use]
    pub fn new(points: Vec<(f64, f64)>) -> Polygon {
        Polygon { points }
    }

    /// Returns true if the point is inside.
    #[must_use]
    pub fn contains(&self, lon: f64, lat: f64) -> bool {
        let mut inside = false;
        let mut previous = self.points[self.points.len() - 1];
        for point in &self.points {
            let ((x1, y1), (x2, y2)) = (previous, *point);
            if (y1 > lat) != (y2 > lat) && lon < (x2 - x1) * (lat - y1) / (y2 - y1) + x1 {
                inside = !inside;
            }
            previous = *point;
        }
        inside
    }
}

/// Returns the length of a unit in metres.
///
/// # Errors
/// The unit is unknown.
pub fn unit(name: &str) -> Result<f64> {
    let found = UNITS.iter().find(|(unit, _)| *unit == name);
    found
        .map(|(_, metres)| *metres)
        .ok_or_else(|| Error::request(format!("unknown distance unit: {name}")))
}

/// Parses a distance such as `100mi`, and returns it in metres.
///
/// # Errors
/// The number is missing, or the unit is unknown.
pub fn parse_distance(text: &str) -> Result<f64> {
    let at =
        text.find(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E').unwrap_or(text.len());
    let number: f64 = text[..at].parse().map_err(|_| {
        Error::request(format!("strconv.ParseFloat: parsing \"{}\": invalid syntax", &text[..at]))
    })?;
    Ok(number * unit(&text[at..])?)
}

/// Returns the great-circle distance between two points in metres.
#[must_use]
pub fn distance(from: (f64, f64), to: (f64, f64)) -> f64 {
    // The radius is the mean of the semi-axes of WGS 84 at the middle latitude.
    const EQUATOR: f64 = 6_378_137.0;
    const POLE: f64 = 6_356_752.314_245;
    let (lat1, lat2) = (from.1.to_radians(), to.1.to_radians());
    let (sin, cos) = ((lat1 + lat2) / 2.0).sin_cos();
    let (a, b) = (EQUATOR * cos, POLE * sin);
    let (c, d) = (EQUATOR * EQUATOR * cos, POLE * POLE * sin);
    let radius = ((c * c + d * d) / (a * a + b * b)).sqrt();
    let half_lat = ((lat2 - lat1) / 2.0).sin();
    let half_lon = ((to.0 - from.0).to_radians() / 2.0).sin();
    let h = half_lat * half_lat + half_lon * half_lon * lat1.cos() * lat2.cos();
    2.0 * radius * h.clamp(0.0, 1.0).sqrt().asin()
}

/// Encodes a point with 32 bits per coordinate, the longitude first.
#[must_use]
pub fn encode(lon: f64, lat: f64) -> u64 {
    let scale = |value: f64, range: f64| {
        ((value + range / 2.0) / range * f64::from(u32::MAX)).round() as u32
    };
    u64::from(scale(lon, 360.0)) << 32 | u64::from(scale(lat, 180.0))
}

/// Decodes a point from [`encode`], as `(longitude, latitude)`.
#[must_use]
pub fn decode(code: u64) -> (f64, f64) {
    let part = |bits: u32, range: f64| f64::from(bits) / f64::from(u32::MAX) * range - range / 2.0;
    (part((code >> 32) as u32, 360.0), part(code as u32, 180.0))
}

/// Parses a point: `[lon, lat]`, `"lat,lon"`, a geohash, or an object with `lon` or `lng` and `lat`.
#[must_use]
pub fn parse_point(value: &Value) -> Option<(f64, f64)> {
    match value {
        Value::Array(parts) if parts.len() >= 2 => Some((parts[0].as_f64()?, parts[1].as_f64()?)),
        Value::Object(members) => {
            let find = |names: &[&str]| {
                members
                    .iter()
                    .find(|(name, _)| names.iter().any(|one| name.eq_ignore_ascii_case(one)))
                    .and_then(|(_, value)| value.as_f64())
            };
            Some((find(&["lon", "lng"])?, find(&["lat"])?))
        }
        Value::String(text) => match text.split_once(',') {
            Some((lat, lon)) => Some((lon.trim().parse().ok()?, lat.trim().parse().ok()?)),
            None => geohash(text),
        },
        _ => None,
    }
}

fn geohash(text: &str) -> Option<(f64, f64)> {
    const LETTERS: &[u8] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    if text.is_empty() || text.len() > 24 {
        return None;
    }
    let (mut lon, mut lat) = ((-180.0, 180.0), (-90.0, 90.0));
    let mut is_lon = true;
    for letter in text.bytes() {
        let value = LETTERS.iter().position(|l| *l == letter.to_ascii_lowercase())?;
        for bit in (0..5).rev() {
            let range: &mut (f64, f64) = if is_lon { &mut lon } else { &mut lat };
            let middle = (range.0 + range.1) / 2.0;
            if value >> bit & 1 == 1 {
                range.0 = middle;
            } else {
                range.1 = middle;
            }
            is_lon = !is_lon;
        }
    }
    Some(((lon.0 + lon.1) / 2.0, (lat.0 + lat.1) / 2.0))
}
