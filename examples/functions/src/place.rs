//! Places on Earth.

use serde::Deserialize;

/// The mean radius of Earth.
const RADIUS_KM: f64 = 6371.0088;

/// A place in documents: `{"lat": 59.91, "lon": 10.75}`, in degrees.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Place {
    /// -90 to 90, north is positive.
    pub lat: f64,
    /// -180 to 180, east is positive.
    pub lon: f64,
}

/// Returns the distance of two places on the surface of a sphere, by the haversine formula: within 0.6 % of the true
/// distance.
///
/// # Errors
/// Fails if one of them is not a valid place.
pub fn distance_km(from: Place, to: Place) -> Result<f64, String> {
    let (from_lat, from_lon) = radians(from)?;
    let (to_lat, to_lon) = radians(to)?;
    let half_sine_squared = |angle: f64| (angle / 2.0).sin().powi(2);
    let haversine = half_sine_squared(to_lat - from_lat)
        + from_lat.cos() * to_lat.cos() * half_sine_squared(to_lon - from_lon);
    // Rounding may raise it above 1, where the arc sine is undefined.
    Ok(2.0 * RADIUS_KM * haversine.min(1.0).sqrt().asin())
}

fn radians(Place { lat, lon }: Place) -> Result<(f64, f64), String> {
    match lat.abs() <= 90.0 && lon.abs() <= 180.0 {
        true => Ok((lat.to_radians(), lon.to_radians())),
        false => Err(format!("{lat}, {lon} is no place on Earth")),
    }
}
