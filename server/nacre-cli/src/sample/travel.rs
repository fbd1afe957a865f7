//! The sample `travel`.

use super::{Documents, Numbers, rows};
use serde_json::{Value, json};

const AIRPORTS: &str = include_str!("../../samples/airports.csv");
const AIRLINES: &str = include_str!("../../samples/airlines.csv");
/// Routes per airline.
const ROUTES: usize = 20;
/// Hotels per city.
const HOTELS: usize = 4;

/// Returns the documents of all collections.
pub fn documents() -> Vec<Documents> {
    let airports: Vec<Value> = rows(AIRPORTS).map(|row| airport(&row)).collect();
    let airlines: Vec<Vec<String>> = rows(AIRLINES).collect();
    let key = |kind: &str, name: &Value| format!("{kind}_{}", name.as_str().unwrap_or_default());
    let mut numbers = Numbers(1);
    let routes = airlines.iter().flat_map(|airline| routes(airline, &airports, &mut numbers));
    let routes: Vec<_> = routes.collect();
    let hotels = airports.iter().flat_map(|airport| hotels(airport, &mut numbers)).collect();
    let airlines = airlines.iter().map(|row| {
        let [iata, icao, name, country, hub] = row.as_slice() else { unreachable!("five columns") };
        let airline =
            json!({"iata": iata, "icao": icao, "name": name, "country": country, "hub": hub});
        (format!("airline_{iata}"), airline)
    });
    let airlines = airlines.collect();
    let airports = airports.into_iter().map(|airport| (key("airport", &airport["iata"]), airport));
    vec![
        Documents { collection: "airport", documents: airports.collect() },
        Documents { collection: "airline", documents: airlines },
        Documents { collection: "route", documents: routes },
        Documents { collection: "hotel", documents: hotels },
    ]
}

fn airport(row: &[String]) -> Value {
    let [iata, name, city, country, lat, lon] = row else { unreachable!("six columns") };
    let degrees = |text: &str| text.parse::<f64>().expect("a number in the table");
    json!({"iata": iata, "name": name, "city": city, "country": country,
        "geo": {"lat": degrees(lat), "lon": degrees(lon)}})
}

/// Returns the routes of an airline from its hub, one to each of several airports.
fn routes(airline: &[String], airports: &[Value], numbers: &mut Numbers) -> Vec<(String, Value)> {
    const AIRCRAFT: [&str; 6] = ["A320", "A321", "A350", "737", "777", "787"];
    let (iata, hub) = (&airline[0], &airline[4]);
    let from = airports.iter().position(|airport| airport["iata"] == **hub);
    let from = from.expect("a hub is an airport");
    let first = numbers.below(airports.len() as u64) as usize;
    let others = (0..airports.len()).map(|step| (first + step) % airports.len());
    let others = others.filter(|to| *to != from).take(ROUTES);
    let mut route = |to: usize| {
        let (from, to) = (&airports[from], &airports[to]);
        let (start, end) = (from["iata"].as_str(), to["iata"].as_str());
        let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
        let days: Vec<u64> = (1..=7).filter(|_| numbers.below(3) > 0).collect();
        let route = json!({"airline": iata, "from": start, "to": end, "km": km_between(from, to),
            "aircraft": numbers.one_of(&AIRCRAFT), "days": days});
        (format!("route_{iata}_{start}_{end}"), route)
    };
    others.map(&mut route).collect()
}

/// Returns the hotels of an airport's city.
fn hotels(airport: &Value, numbers: &mut Numbers) -> Vec<(String, Value)> {
    const NAMES: [&str; 8] =
        ["Grand", "Station", "Park", "Harbour", "Royal", "Garden", "Central", "Old Mill"];
    const FEATURES: [&str; 6] = ["breakfast", "pool", "parking", "wifi", "pets", "gym"];
    let city = airport["city"].as_str().unwrap_or_default();
    let first = numbers.below(NAMES.len() as u64) as usize;
    let mut hotel = |step: usize| {
        let name = NAMES[(first + step) % NAMES.len()];
        let stars = 2 + numbers.below(4);
        let features: Vec<&str> = FEATURES.into_iter().filter(|_| numbers.below(2) == 0).collect();
        let hotel = json!({"name": format!("{name} Hotel {city}"), "city": city,
            "country": airport["country"], "airport": airport["iata"], "stars": stars,
            "price": 30 * stars + numbers.below(60), "features": features});
        (format!("hotel_{}_{step}", airport["iata"].as_str().unwrap_or_default()), hotel)
    };
    (0..HOTELS).map(&mut hotel).collect()
}

/// Returns the distance between two airports on a sphere, in kilometres (haversine formula).
fn km_between(from: &Value, to: &Value) -> u64 {
    const EARTH_RADIUS_KM: f64 = 6371.0;
    let radians =
        |airport: &Value, of: &str| airport["geo"][of].as_f64().unwrap_or_default().to_radians();
    let (from_lat, to_lat) = (radians(from, "lat"), radians(to, "lat"));
    let lat = (to_lat - from_lat) / 2.0;
    let lon = (radians(to, "lon") - radians(from, "lon")) / 2.0;
    let square = lat.sin().powi(2) + from_lat.cos() * to_lat.cos() * lon.sin().powi(2);
    (2.0 * EARTH_RADIUS_KM * square.sqrt().asin()).round() as u64
}
