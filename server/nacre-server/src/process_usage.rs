//! What the process has used, as the system counts it.

use nacre_console::ProcessUsage;

/// Ticks a second in `/proc`, which is the same on all architectures that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of a page of memory.
const PAGE_BYTES: u64 = 4096;

/// Reads what the process has used; nothing where the system does not say.
pub fn read() -> ProcessUsage {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    parse(&stat, &memory)
}

fn parse(stat: &str, memory: &str) -> ProcessUsage {
    // The name of the program, in parentheses, may have spaces.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    let pages = memory.split(' ').nth(1).and_then(|field| field.parse::<u64>().ok());
    ProcessUsage {
        cpu_seconds: ticks.sum::<f64>() / TICKS_PER_SECOND,
        resident_bytes: pages.unwrap_or_default() * PAGE_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_memory_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 100 1 2";
        let usage = parse(stat, "1000 20 5 1 0 9 0");
        assert_eq!(usage, ProcessUsage { cpu_seconds: 3.0, resident_bytes: 20 * 4096 });
        assert_eq!(parse("", ""), ProcessUsage::default());
        assert!(read().resident_bytes > 0);
    }
}
