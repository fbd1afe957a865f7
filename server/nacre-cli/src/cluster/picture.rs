//! The map of a bucket as text: for each vBucket one character, the number of the node that serves it.

use serde_json::Value;
use std::fmt::Write;

/// vBuckets per line.
const WIDTH: usize = 64;
/// Characters of nodes in the order of the map; further nodes share one character.
const SIGNS: &[u8; 35] = b"123456789abcdefghijklmnopqrstuvwxyz";
/// The character that further nodes share.
const OTHER: char = '+';
/// The character of a vBucket that no node serves.
const NOBODY: char = '.';

fn sign(place: i64) -> char {
    match usize::try_from(place) {
        Ok(place) => SIGNS.get(place).map_or(OTHER, |sign| char::from(*sign)),
        Err(_) => NOBODY,
    }
}

/// Draws a map in the form of `/pools/default/buckets/{name}`.
pub fn draw(map: &Value) -> String {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let servers = array(&map["vBucketServerMap"]["serverList"]);
    let chains: Vec<Vec<i64>> = array(&map["vBucketServerMap"]["vBucketMap"])
        .iter()
        .map(|chain| array(chain).iter().map(|place| place.as_i64().unwrap_or(-1)).collect())
        .collect();
    let name = map["name"].as_str().unwrap_or_default();
    let mut picture =
        format!("{name}: {} vBuckets, each by the node that serves it\n", chains.len());
    let active: Vec<i64> = chains.iter().map(|chain| *chain.first().unwrap_or(&-1)).collect();
    for (place, server) in (0_i64..).zip(&servers) {
        let active = active.iter().filter(|serves| **serves == place).count();
        let replicas =
            chains.iter().filter(|chain| chain.iter().skip(1).any(|copy| *copy == place)).count();
        let server = server.as_str().unwrap_or_default();
        let _ =
            writeln!(picture, "{:>5}  {server}: {active} active, {replicas} replicas", sign(place));
    }
    let unserved = active.iter().filter(|place| **place < 0).count();
    if unserved > 0 {
        let _ = writeln!(picture, "{NOBODY:>5}  nobody: {unserved}");
    }
    for (line, active) in active.chunks(WIDTH).enumerate() {
        let signs: String = active.iter().copied().map(sign).collect();
        let _ = writeln!(picture, "{:>5}  {signs}", line * WIDTH);
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_picture_has_a_character_for_each_vbucket() {
        let mut chains = vec![json!([0, 1]); 40];
        chains.extend(vec![json!([1, 0]); 29]);
        chains.push(json!([-1, -1]));
        let servers = json!(["a:11210", "b:11210"]);
        let map = json!({
            "name": "shells",
            "vBucketServerMap": {"serverList": servers, "vBucketMap": chains},
        });
        insta::assert_snapshot!(draw(&map), @r"
        shells: 70 vBuckets, each by the node that serves it
            1  a:11210: 40 active, 29 replicas
            2  b:11210: 29 active, 40 replicas
            .  nobody: 1
            0  1111111111111111111111111111111111111111222222222222222222222222
           64  22222.
        ");
    }

    #[test]
    fn an_invalid_map_is_drawn_as_an_empty_one() {
        assert_eq!(draw(&json!({})), ": 0 vBuckets, each by the node that serves it\n");
        assert_eq!((sign(40), sign(-1)), (OTHER, NOBODY));
    }
}
