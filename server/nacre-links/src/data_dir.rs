//! The data directory as a whole: permissions, required parts, and the space reserve.
//!
//! ```text
//! data directory   0700, files 0600
//! ├─ node/         settings of the node, and the Raft log
//! ├─ tls/          keys and certificates: see [`crate::tls`]
//! ├─ buckets/      a directory for each bucket
//! ├─ states/       state of plugins, rebuilt if it is lost
//! ├─ plugins/      compiled plugins
//! ├─ capsules/     failed calls of plugins
//! ├─ analytics/    definitions of analytics, and spill files of its queries
//! └─ reserve       space for the next start on a full disk
//! ```

use nacre_store::Error;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The space of the node's settings, which a node creates first.
const SETTINGS: &str = "node";
/// Permission bits of other users, which must be clear.
const OTHERS: u32 = 0o077;
/// Size of the reserve. A start writes some hundred KB: settings, certificates, the mark of an unclean stop.
const RESERVE_BYTES: u64 = 8 << 20;
/// The smallest reserve that is worth a file.
const RESERVE_BYTES_MIN: u64 = 64 << 10;
/// The disk counts as full when this much cannot be allocated.
const PROBE_BYTES: u64 = 1 << 20;

/// Removes the permissions of other users from a data directory that an earlier version or the operator has left open.
///
/// # Errors
/// Fails when a directory cannot be read. Permissions that cannot be changed are logged.
pub fn close_to_others(path: &Path) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    let (mut closed, mut refused) = (0_u64, None);
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let failed = Error::io(format!("read {}", path.display()));
        let about = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            about => about.map_err(failed)?,
        };
        // A symbolic link may lead out of the directory.
        if about.is_symlink() {
            continue;
        }
        let mode = about.permissions().mode();
        if mode & OTHERS != 0 {
            match fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777 & !OTHERS)) {
                Ok(()) => closed += 1,
                Err(error) => drop(refused.get_or_insert((path.clone(), error))),
            }
        }
        if about.is_dir() {
            let entries =
                fs::read_dir(&path).map_err(Error::io(format!("read {}", path.display())))?;
            left.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        }
    }
    if closed > 0 {
        tracing::warn!(
            "other users of the machine could read {closed} files and directories of {}: they cannot any more; change passwords if \
             somebody may have read them",
            path.display()
        );
    }
    if let Some((path, error)) = refused {
        tracing::warn!(
            "other users of the machine can read {}, and this cannot be changed: {error}",
            path.display()
        );
    }
    Ok(())
}

/// Creates a directory for temporary data with an unpredictable name.
///
/// # Errors
/// Fails when the operating system refuses.
pub fn temporary() -> io::Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("nacre-dev-{:016x}", rand::random::<u64>()));
    // Fails if the name exists.
    DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// Refuses a directory that has some of the spaces `names` but no settings: the node would start as a new, empty one.
///
/// # Errors
/// [`Error::Damaged`], with the missing part.
pub fn check(data_dir: &Path, names: &[String]) -> Result<(), Error> {
    if names.iter().any(|name| name == SETTINGS) {
        return Ok(());
    }
    let is_filled =
        |name: &str| data_dir.join(name).read_dir().is_ok_and(|mut found| found.next().is_some());
    let witness = if let Some(other) = names.first() {
        format!("the space {other} is there")
    } else if is_filled("buckets") {
        "there are buckets".to_owned()
    } else if crate::tls::NodeKey::path(data_dir).exists() {
        // The key is created after the settings, so the settings were lost.
        "the key of the node is there".to_owned()
    } else {
        return Ok(());
    };
    let what =
        format!("{witness}, but the settings of the node (node/0.space, as a rule) are missing");
    Err(Error::Damaged { path: data_dir.to_owned(), what })
}

/// Disk space reserved for the next start, in case the disk is full.
pub struct Reserve {
    path: PathBuf,
    is_released: bool,
}

impl Reserve {
    /// Releases the reserve if the disk is full, until [`Reserve::fill`].
    pub fn open(data_dir: &Path) -> Reserve {
        let path = data_dir.join("reserve");
        let is_full = allocate(&data_dir.join("reserve.probe"), PROBE_BYTES)
            .is_err_and(|error| is_full(&error));
        let _ = fs::remove_file(data_dir.join("reserve.probe"));
        let bytes = fs::metadata(&path).map_or(0, |about| about.len());
        let is_released = is_full && bytes > 0 && fs::remove_file(&path).is_ok();
        if is_released {
            tracing::error!(
                "the disk of {} has no space left: the node starts with {bytes} bytes of its reserve, and refuses writes until there is \
                 space: free some",
                data_dir.display()
            );
        }
        Reserve { path, is_released }
    }

    /// Allocates the reserve, or as much of it as the disk has space for.
    pub fn fill(&self) {
        if fs::metadata(&self.path).is_ok_and(|about| about.len() == RESERVE_BYTES) {
            return;
        }
        let mut bytes = RESERVE_BYTES;
        while bytes >= RESERVE_BYTES_MIN {
            match allocate(&self.path, bytes) {
                Ok(()) => return,
                Err(error) if is_full(&error) => bytes /= 2,
                Err(error) => {
                    tracing::debug!("no space is kept in reserve: {error}");
                    break;
                }
            }
        }
        let _ = fs::remove_file(&self.path);
        if self.is_released {
            tracing::error!(
                "there is no space for a reserve: the node may not start again before there is some"
            );
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Creates a file of this size with allocated space.
fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file: File =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_store::{LogSpaces, OnDamage, Spaces};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn an_open_directory_is_closed_and_targets_of_links_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let (data, outside) = (folder.path().join("data"), folder.path().join("outside"));
        fs::create_dir_all(data.join("node")).unwrap();
        fs::write(data.join("node/0.space"), "secret").unwrap();
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, data.join("link")).unwrap();
        for path in [&data, &data.join("node")] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        for path in [&data.join("node/0.space"), &outside] {
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        close_to_others(&data).unwrap();
        assert_eq!((mode(&data), mode(&data.join("node"))), (0o700, 0o700));
        assert_eq!((mode(&data.join("node/0.space")), mode(&outside)), (0o600, 0o644));
        close_to_others(&folder.path().join("none")).unwrap();
    }

    #[test]
    fn missing_settings_next_to_other_data_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let spaces = || LogSpaces::open(&data.join("node"), OnDamage::Refuse).unwrap();
        let check = || check(data, &spaces().names().unwrap());
        check().unwrap();
        spaces().open("agreement/1").unwrap();
        let refused = check().unwrap_err().to_string();
        assert!(refused.contains("agreement/1") && refused.contains("node/0.space"), "{refused}");
        spaces().remove("agreement/1").unwrap();
        fs::create_dir_all(data.join("buckets/b")).unwrap();
        assert!(check().unwrap_err().to_string().contains("there are buckets"));
        spaces().open("node").unwrap();
        check().unwrap();
    }

    #[test]
    fn a_reserve_is_filled_once_and_survives_a_start_with_space() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = || Reserve::open(folder.path());
        reserve().fill();
        let path = folder.path().join("reserve");
        assert_eq!(fs::metadata(&path).unwrap().len(), RESERVE_BYTES);
        reserve();
        assert!(path.exists() && mode(&path) == 0o600);
        fs::remove_file(&path).unwrap();
        reserve().fill();
        assert!(path.exists());
    }

    #[test]
    fn temporary_directories_differ_and_are_private() {
        let (first, second) = (temporary().unwrap(), temporary().unwrap());
        assert_ne!(first, second);
        assert_eq!(mode(&first), 0o700);
        fs::remove_dir(first).unwrap();
        fs::remove_dir(second).unwrap();
    }
}
