//! The memory limit of a node: the operator's, or a part of the memory of the machine and the control group.

use nacre_links::platform;
use nacre_node::{Node, NodeMemory};
use std::path::{Path, PathBuf};

/// The default limit in percent of the machine's memory, or of the control group's limit. The rest is for the operating
/// system's cache of files, and for peaks.
const DEFAULT_PERCENT: u64 = 80;
/// The least that a node can work with, in bytes.
const BYTES_MIN: u64 = 256 << 20;

/// Units by their names, in lower case, with their bytes.
const UNITS: [(&str, u64); 12] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("tib", 1 << 40),
];

/// Reads an amount of memory, such as `4GiB`, `512MiB` or a number of bytes.
///
/// # Errors
/// The mistake, for the operator.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let known = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
    let bytes = number.parse::<u64>().ok().zip(known);
    let bytes = bytes.and_then(|(number, unit)| number.checked_mul(unit));
    let bytes = bytes.ok_or_else(|| {
        format!("{text:?} is not an amount of memory: write it as 4GiB or 512MiB")
    })?;
    match bytes < BYTES_MIN {
        true => Err(format!("a node needs {} MiB at least", BYTES_MIN >> 20)),
        false => Ok(bytes),
    }
}

/// Gives a node its memory limit, and warns if the quotas of buckets exceed it.
pub fn set_up(node: &Node, wanted: Option<u64>) {
    let available = available_bytes();
    let limit = wanted.or_else(|| available.map(|bytes| bytes / 100 * DEFAULT_PERCENT));
    let Some(limit) = limit else {
        tracing::warn!(
            "the memory of this machine is not known: limit that of the node with --memory"
        );
        return;
    };
    let limit = limit.max(BYTES_MIN);
    if let Some(available) = available.filter(|available| *available < limit) {
        tracing::warn!(
            "the node may use {} MiB of memory, but only {} MiB are available: give it less with --memory",
            limit >> 20,
            available >> 20
        );
    }
    let memory = node.memory();
    memory.set_limit(limit);
    warn_of_quotas(memory);
    tracing::info!(
        "the node may use {} MiB of memory: {} MiB for buckets, {} MiB for requests and answers, {} MiB for plugins",
        limit >> 20,
        memory.quotas_bytes() >> 20,
        memory.budgets().requests.limit() >> 20,
        (memory.budgets().state.limit() + memory.budgets().writers.limit()) >> 20
    );
}

fn warn_of_quotas(memory: &NodeMemory) {
    let quotas = memory.quotas_bytes();
    if let Some(max) = memory.quotas_bytes_max().filter(|max| quotas > *max) {
        tracing::warn!(
            "buckets have quotas of {} MiB together, more than the {} MiB that this node has for them: make them smaller, or give the node more with --memory",
            quotas >> 20,
            max >> 20
        );
    }
}

/// The memory that the process can have, in bytes: that of the machine, or the limit of its control group when that is less.
fn available_bytes() -> Option<u64> {
    let of_machine = platform::memory_bytes();
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_group = limit_files(&groups, Path::new("/sys/fs/cgroup"))
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
        .min();
    of_machine.into_iter().chain(of_group).min()
}

/// The files that may hold a limit of the control groups that `/proc/self/cgroup` names: of each group and of those that it is in, as the
/// least of them counts. A container may see its own group as the root. Source: cgroups(7).
fn limit_files(groups: &str, root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        let all = group.ancestors().take_while(|above| above.starts_with(&root));
        files.extend(all.map(|above| above.join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read_or_refused() {
        for (text, bytes) in
            [("4GiB", 4 << 30), ("512 MiB", 512 << 20), ("1g", 1 << 30), ("300000000", 300_000_000)]
        {
            assert_eq!(parse(text), Ok(bytes));
        }
        for text in
            ["", "GiB", "4 apples", "-1", "1.5GiB", "99999999999GiB", "18446744073709551616"]
        {
            assert!(parse(text).unwrap_err().contains("4GiB"), "{text}");
        }
        assert_eq!(parse("1MiB"), Err("a node needs 256 MiB at least".into()));
    }

    #[test]
    fn limits_of_both_kinds_of_control_groups_are_found() {
        let files = |groups: &str| {
            let files = limit_files(groups, Path::new("/c"));
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(files("0::/a/b\n"), ["/c/a/b/memory.max", "/c/a/memory.max", "/c/memory.max"]);
        assert_eq!(
            files("12:cpu,cpuacct:/x\n9:memory:/a\n0::/\nnonsense"),
            [
                "/c/memory/a/memory.limit_in_bytes",
                "/c/memory/memory.limit_in_bytes",
                "/c/memory.max"
            ]
        );
    }
}
