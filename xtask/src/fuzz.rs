//! `cargo xtask fuzz`: coverage-guided fuzzing of the decoders and the planner.

use clap::Args;
use std::fs;
use std::process::Command;
use xtask_setup::command::{cargo, output, run as run_command, target_dir, workspace};

/// Compiler options that count the executed paths, as libFuzzer expects. Source: LLVM's reference of SanitizerCoverage.
const COUNTING: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
];

/// Options of `cargo xtask fuzz`.
#[derive(Args)]
pub struct Fuzz {
    /// Targets, by the names of the folders in fuzz/corpus; all if none is named
    pub targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
}

/// Fuzzes the targets, one after another.
///
/// # Errors
/// Reports the first target that crashed; its input is kept in a file.
pub fn run(options: &Fuzz) -> Result<(), String> {
    let target = target_dir()?.join("fuzz");
    let host = output(Command::new("rustc").arg("-vV"), "ask rustc for its target")?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not report its target")?;
    let mut build = cargo();
    build
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", COUNTING.join(" "));
    build.args([
        "build",
        "--release",
        "-p",
        "nacre-fuzz",
        "--features",
        "coverage",
        "--target",
        host,
    ]);
    run_command(&mut build, "build the targets (a compiler of C++ is needed)")?;
    let known = workspace().join("fuzz/corpus");
    let mut names = options.targets.clone();
    if names.is_empty() {
        let folders =
            fs::read_dir(&known).map_err(|error| format!("{}: {error}", known.display()))?;
        names.extend(folders.flatten().filter_map(|folder| folder.file_name().into_string().ok()));
        names.sort();
    }
    for name in names {
        let [found, fallen] = ["corpus", "fallen"].map(|kind| target.join(kind).join(&name));
        for folder in [&found, &fallen] {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        println!("{name}: {} s", options.seconds);
        let mut fuzz = Command::new(target.join(host).join("release/fuzz"));
        fuzz.env("NACRE_FUZZ_TARGET", &name)
            .args([&found, &known.join(&name)])
            .arg(format!("-max_total_time={}", options.seconds))
            .arg(format!("-artifact_prefix={}/", fallen.display()))
            .args([
                "-timeout=10",
                "-rss_limit_mb=2048",
                "-max_len=4096",
                "-verbosity=0",
                "-print_final_stats=1",
            ]);
        let purpose = format!(
            "fuzz {name}: fix the crash, and keep the file named above in fuzz/corpus/{name}"
        );
        run_command(&mut fuzz, &purpose)?;
    }
    Ok(())
}
