//! GeoJSON shapes in the plane of longitudes and latitudes; circles are round on Earth.
//!
//! The plane has no date line: an edge takes the shorter way around Earth, so that the ring 170, -170 becomes 170, 190. A shape that
//! reaches beyond 180° is there twice, one turn apart, because points are given between -180° and 180°. A ring around a pole is
//! closed along the pole.

use super::{distance, parse_distance};
use crate::error::{Error, Result};
use crate::query::Relation;
use serde_json::Value;

type Point = (f64, f64);

/// Maximum depth of nested collections.
const DEPTH_MAX: usize = 16;
/// Once around Earth, in degrees.
const TURN: f64 = 360.0;

#[derive(Clone, Debug)]
enum Part {
    Point(Point),
    Line(Vec<Point>),
    /// The outer ring, followed by holes. Each ring ends at its starting point.
    Polygon(Vec<Vec<Point>>),
    Circle(Point, f64),
}

/// A shape: points, lines, polygons and circles.
#[derive(Clone, Debug)]
pub struct Shape {
    parts: Vec<Part>,
}

impl Shape {
    /// Parses a GeoJSON shape; `circle` and `envelope` are also allowed.
    ///
    /// # Errors
    /// The type is unknown, or the coordinates do not suit it.
    pub fn parse(value: &Value) -> Result<Shape> {
        let mut parts = Vec::new();
        collect(value, &mut parts, 0)?;
        Ok(Shape { parts })
    }

    /// Returns true if this shape, of a document, has the relation to the shape of a query.
    #[must_use]
    pub fn relates(&self, query: &Shape, relation: Relation) -> bool {
        match relation {
            Relation::Intersects => self.intersects(query),
            Relation::Disjoint => !self.intersects(query),
            Relation::Contains => query.within(self),
            Relation::Within => self.within(query),
        }
    }

    fn intersects(&self, other: &Shape) -> bool {
        self.parts.iter().any(|a| other.parts.iter().any(|b| a.intersects(b)))
    }

    fn within(&self, other: &Shape) -> bool {
        self.parts.iter().all(|a| other.parts.iter().any(|b| a.within(b)))
    }
}

fn invalid() -> Error {
    Error::request("geo shape not in a valid format")
}

fn collect(value: &Value, parts: &mut Vec<Part>, depth: usize) -> Result<()> {
    let kind = value["type"].as_str().unwrap_or_default().to_ascii_lowercase();
    let coordinates = &value["coordinates"];
    match &*kind {
        "point" => parts.push(Part::Point(point(coordinates)?)),
        "multipoint" => parts.extend(points(coordinates)?.into_iter().map(Part::Point)),
        "linestring" => add(parts, line(coordinates)?),
        "multilinestring" => {
            for one in array(coordinates)? {
                add(parts, line(one)?);
            }
        }
        "polygon" => add(parts, polygon(coordinates)?),
        "multipolygon" => {
            for one in array(coordinates)? {
                add(parts, polygon(one)?);
            }
        }
        "geometrycollection" => {
            if depth >= DEPTH_MAX {
                return Err(invalid());
            }
            for one in array(&value["geometries"])? {
                collect(one, parts, depth + 1)?;
            }
        }
        "circle" => {
            let radius = match &value["radius"] {
                Value::String(text) => parse_distance(text)?,
                number => number.as_f64().ok_or_else(invalid)?,
            };
            parts.push(Part::Circle(point(coordinates)?, radius));
        }
        "envelope" => {
            let corners = points(coordinates)?;
            let [(west, north), (east, south)] = corners[..] else { return Err(invalid()) };
            let (west, east) = match () {
                // A box across the date line.
                () if east < west => (west, east + TURN),
                // A box around Earth also contains what reaches over the date line or around a pole.
                () if east - west >= TURN => (west - 4.0 * TURN, east + 4.0 * TURN),
                () => (west, east),
            };
            let corners =
                [(west, south), (east, south), (east, north), (west, north), (west, south)];
            add(parts, Part::Polygon(vec![corners.to_vec()]));
        }
        other => return Err(Error::request(format!("unknown shape type: {other}"))),
    }
    Ok(())
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().ok_or_else(invalid)
}

fn point(value: &Value) -> Result<Point> {
    let parts = array(value)?;
    match (parts.first().and_then(Value::as_f64), parts.get(1).and_then(Value::as_f64)) {
        (Some(lon), Some(lat)) => Ok((lon, lat)),
        _ => Err(invalid()),
    }
}

fn points(value: &Value) -> Result<Vec<Point>> {
    array(value)?.iter().map(point).collect()
}

fn line(value: &Value) -> Result<Part> {
    let points = points(value)?;
    if points.len() < 2 { Err(invalid()) } else { Ok(Part::Line(unwrapped(points))) }
}

/// Adds a line or polygon; if it reaches beyond 180°, also the same one turn away.
fn add(parts: &mut Vec<Part>, part: Part) {
    let lons = part.edges().flat_map(|(a, b)| [a.0, b.0]);
    let (west, east) = lons.fold((TURN, -TURN), |(west, east), lon| (lon.min(west), lon.max(east)));
    let other = match () {
        () if east > TURN / 2.0 => Some(part.shifted(-TURN)),
        () if west < -TURN / 2.0 => Some(part.shifted(TURN)),
        () => None,
    };
    parts.push(part);
    parts.extend(other);
}

/// Makes longitudes continuous: each edge takes the shorter way around Earth.
fn unwrapped(mut points: Vec<Point>) -> Vec<Point> {
    let (mut turns, mut previous) = (0.0, points.first().map_or(0.0, |point| point.0));
    for point in &mut points {
        let step = point.0 - previous;
        previous = point.0;
        if step.abs() > TURN / 2.0 && step.abs() < TURN {
            turns -= TURN.copysign(step);
        }
        point.0 += turns;
    }
    points
}

/// Closes a ring. A ring around a pole ends one turn from its start: it goes on for some turns, then to the pole and back.
fn closed(ring: Vec<Point>) -> Vec<Point> {
    let mut ring = unwrapped(ring);
    let (Some(first), Some(last)) = (ring.first().copied(), ring.last().copied()) else {
        return ring;
    };
    if first != last {
        let turn = last.0 - first.0;
        let latitudes: f64 = ring.iter().map(|point| point.1).sum();
        let pole = 90_f64.copysign(latitudes);
        // The two meridians at which the ring goes to the pole and back are far outside of the longitudes of points.
        let times = [-2.0, -1.0, 0.0, 1.0].into_iter();
        ring =
            times.flat_map(|n| ring.iter().map(move |(lon, lat)| (lon + n * turn, *lat))).collect();
        let (start, end) = (first.0 - 2.0 * turn, last.0 + turn);
        ring.extend([(end, pole), (start, pole), (start, first.1)]);
    }
    ring
}

/// Returns the longitude of the same meridian that is nearest to another longitude.
fn nearest(lon: f64, other: f64) -> f64 {
    lon + TURN * ((other - lon) / TURN).round()
}

fn polygon(value: &Value) -> Result<Part> {
    let mut rings = Vec::new();
    for ring in array(value)? {
        let mut ring = points(ring)?;
        if ring.first() != ring.last() {
            ring.extend(ring.first().copied());
        }
        if ring.len() < 4 {
            return Err(invalid());
        }
        rings.push(closed(ring));
    }
    let Some((outer, holes)) = rings.split_first_mut() else { return Err(invalid()) };
    let (west, east) =
        outer.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(west, east), point| {
            (point.0.min(west), point.0.max(east))
        });
    for hole in holes {
        // A hole is where its polygon is.
        let by = nearest(hole[0].0, (west + east) / 2.0) - hole[0].0;
        hole.iter_mut().for_each(|point| point.0 += by);
    }
    Ok(Part::Polygon(rings))
}

/// Position of a point relative to a polygon.
#[derive(PartialEq)]
enum Side {
    Inside,
    Border,
    Outside,
}

fn side(point: Point, rings: &[Vec<Point>]) -> Side {
    let mut inside = false;
    for ring in rings {
        for edge in ring.windows(2) {
            let ((x1, y1), (x2, y2)) = (edge[0], edge[1]);
            if on_segment(point, edge[0], edge[1]) {
                return Side::Border;
            }
            if (y1 > point.1) != (y2 > point.1)
                && point.0 < (x2 - x1) * (point.1 - y1) / (y2 - y1) + x1
            {
                inside = !inside;
            }
        }
    }
    if inside { Side::Inside } else { Side::Outside }
}

fn cross(o: Point, a: Point, b: Point) -> f64 {
    (a.0 - o.0) * (b.1 - o.1) - (a.1 - o.1) * (b.0 - o.0)
}

fn on_segment(p: Point, a: Point, b: Point) -> bool {
    cross(a, b, p).abs() <= 1e-12
        && p.0 >= a.0.min(b.0)
        && p.0 <= a.0.max(b.0)
        && p.1 >= a.1.min(b.1)
        && p.1 <= a.1.max(b.1)
}

/// Returns true if two segments share a point.
fn meet(a: Point, b: Point, c: Point, d: Point) -> bool {
    proper(a, b, c, d)
        || on_segment(a, c, d)
        || on_segment(b, c, d)
        || on_segment(c, a, b)
        || on_segment(d, a, b)
}

/// Returns true if two segments cross at a point that is an endpoint of neither.
fn proper(a: Point, b: Point, c: Point, d: Point) -> bool {
    cross(a, b, c) * cross(a, b, d) < 0.0 && cross(c, d, a) * cross(c, d, b) < 0.0
}

/// Returns the distance from a point to a segment in metres.
fn to_segment(p: Point, a: Point, b: Point) -> f64 {
    let p = (nearest(p.0, a.0), p.1);
    let scale = p.1.to_radians().cos();
    let (dx, dy) = ((b.0 - a.0) * scale, b.1 - a.1);
    let length = dx * dx + dy * dy;
    let along = if length == 0.0 {
        0.0
    } else {
        (((p.0 - a.0) * scale * dx + (p.1 - a.1) * dy) / length).clamp(0.0, 1.0)
    };
    distance(p, (a.0 + (b.0 - a.0) * along, a.1 + (b.1 - a.1) * along))
}

impl Part {
    fn edges(&self) -> impl Iterator<Item = (Point, Point)> + '_ {
        let lines: &[Vec<Point>] = match self {
            Part::Line(points) => std::slice::from_ref(points),
            Part::Polygon(rings) => rings,
            Part::Point(_) | Part::Circle(..) => &[],
        };
        lines.iter().flat_map(|line| line.windows(2).map(|edge| (edge[0], edge[1])))
    }

    /// Returns the same line or polygon, further east.
    fn shifted(&self, by: f64) -> Part {
        let shift = |points: &Vec<Point>| -> Vec<Point> {
            points.iter().map(|(lon, lat)| (lon + by, *lat)).collect()
        };
        match self {
            Part::Line(points) => Part::Line(shift(points)),
            Part::Polygon(rings) => Part::Polygon(rings.iter().map(shift).collect()),
            Part::Point(_) | Part::Circle(..) => self.clone(),
        }
    }

    fn first(&self) -> Point {
        match self {
            Part::Point(point) | Part::Circle(point, _) => *point,
            Part::Line(points) => points[0],
            Part::Polygon(rings) => rings[0][0],
        }
    }

    fn intersects(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::Circle(a, r), Part::Circle(b, s)) => distance(*a, *b) <= r + s,
            (Part::Circle(centre, radius), part) | (part, Part::Circle(centre, radius)) => {
                part.covers(*centre)
                    || distance(part.first(), *centre) <= *radius
                    || part.edges().any(|(a, b)| to_segment(*centre, a, b) <= *radius)
            }
            (Part::Point(point), part) | (part, Part::Point(point)) => part.covers(*point),
            (a, b) => {
                a.covers(b.first())
                    || b.covers(a.first())
                    || a.edges().any(|(p, q)| b.edges().any(|(r, s)| meet(p, q, r, s)))
            }
        }
    }

    /// Returns true if the shape contains a point, including its border.
    fn covers(&self, point: Point) -> bool {
        match self {
            Part::Point(own) => *own == point,
            Part::Line(_) => self.edges().any(|(a, b)| on_segment(point, a, b)),
            Part::Polygon(rings) => side(point, rings) != Side::Outside,
            Part::Circle(centre, radius) => distance(*centre, point) <= *radius,
        }
    }

    fn within(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::Circle(a, r), Part::Circle(b, s)) => distance(*a, *b) + r <= *s,
            (Part::Circle(centre, radius), Part::Polygon(rings)) => {
                side(*centre, rings) == Side::Inside
                    && other.edges().all(|(a, b)| to_segment(*centre, a, b) >= *radius)
            }
            (Part::Circle(..), _) => false,
            // A point on the border of a polygon is not within it.
            (Part::Point(point), Part::Polygon(rings)) => side(*point, rings) == Side::Inside,
            (Part::Point(point), other) => other.covers(*point),
            (_, Part::Point(_)) | (Part::Polygon(_), Part::Line(_)) => false,
            (part, Part::Polygon(rings)) => {
                part.edges().all(|(a, b)| {
                    let middle = ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0);
                    other.covers(a)
                        && other.covers(b)
                        && other.covers(middle)
                        && !other.edges().any(|(c, d)| proper(a, b, c, d))
                }) && !rings[1..].iter().any(|hole| part.covers(hole[0]))
            }
            (part, other) => part.edges().all(|(a, b)| other.covers(a) && other.covers(b)),
        }
    }
}
