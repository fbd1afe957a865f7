//! Settings of a DCP connection: flags of DCP_OPEN, and DCP_CONTROL.

use nacre_protocol::dcp::open_flag::{
    INCLUDE_DELETE_TIMES, INCLUDE_DELETED_USER_XATTRS, INCLUDE_XATTRS, NO_VALUE,
    NO_VALUE_WITH_DATATYPE, PRODUCER, SKIP_DELETES_IN_BACKFILL,
};
use nacre_protocol::{Feature, Features, Status};

/// The longest interval of NOOPs to a silent client, in seconds: three hours.
const NOOP_INTERVAL_S_MAX: u64 = 10_800;
/// The NOOP interval when the client sets none, in seconds.
const NOOP_INTERVAL_S_DEFAULT: u64 = 180;
const NS_PER_S: u64 = 1_000_000_000;

/// The format of snapshot markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkerVersion {
    /// Start and end of a snapshot, and whether it was read from memory or disk.
    V1,
    /// V1 plus the highest visible seqno.
    V2_0,
    /// V2.0 plus the purge seqno.
    V2_2,
}

/// Flags of DCP_OPEN, the features of HELLO that concern messages, and the settings of DCP_CONTROL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    flags: u32,
    features: Features,
    noop: bool,
    noop_interval_s: u64,
    /// Sends expirations as such rather than as deletions.
    pub expirations: bool,
    /// Sends a stream-end message when the client closes a stream.
    pub says_closed: bool,
    /// The client assigns an ID to each stream.
    pub stream_ids: bool,
    /// Also sends superseded versions that the bucket keeps.
    pub history: bool,
    /// Compresses values regardless of the bucket's setting.
    pub forces_compression: bool,
    /// The format of snapshot markers.
    pub marker: MarkerVersion,
    /// Streams give way to requests.
    pub has_low_priority: bool,
    /// The client is another copy: it receives everything and acknowledges its progress.
    pub replicates: bool,
}

/// The effect of a setting outside of [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// The flow-control window: bytes that may be sent without an acknowledgement.
    Window(u64),
    /// Nanoseconds of silence after which the client is pinged; `None` for never.
    Heartbeat(Option<u64>),
    /// True if scans give way to requests.
    LowPriority(bool),
}

impl Settings {
    /// # Errors
    /// Returns the status for a connection that cannot be opened.
    pub fn new(flags: u32, features: Features) -> Result<Settings, Status> {
        let known = PRODUCER
            | INCLUDE_XATTRS
            | NO_VALUE
            | INCLUDE_DELETE_TIMES
            | NO_VALUE_WITH_DATATYPE
            | INCLUDE_DELETED_USER_XATTRS
            | SKIP_DELETES_IN_BACKFILL;
        let both = NO_VALUE | NO_VALUE_WITH_DATATYPE;
        if flags & PRODUCER == 0 {
            // Consumer connections, on which this server would receive history, are not supported.
            return Err(Status::NotSupported);
        }
        if flags & !known != 0 || flags & both == both {
            return Err(Status::InvalidArguments);
        }
        if features.has(Feature::UnorderedExecution) {
            return Err(Status::NotSupported);
        }
        Ok(Settings {
            flags,
            features,
            noop: false,
            noop_interval_s: NOOP_INTERVAL_S_DEFAULT,
            expirations: false,
            says_closed: false,
            stream_ids: false,
            history: false,
            forces_compression: false,
            marker: MarkerVersion::V1,
            has_low_priority: false,
            replicates: false,
        })
    }

    /// Returns true if DCP_OPEN carried a flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if HELLO had agreed on a feature when the connection was opened.
    pub fn speaks(&self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    /// Applies a setting. `can_keep_history` is true if the bucket can keep superseded versions.
    ///
    /// # Errors
    /// [`Status::InvalidArguments`] for an unknown key or value, [`Status::NotSupported`] for a setting that this
    /// bucket does not support.
    pub fn control(
        &mut self,
        key: &[u8],
        value: &[u8],
        can_keep_history: bool,
    ) -> Result<Effect, Status> {
        let text = std::str::from_utf8(value).map_err(|_| Status::InvalidArguments)?;
        let switch = || match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Status::InvalidArguments),
        };
        let number = |range: std::ops::RangeInclusive<u64>| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or(Status::InvalidArguments)
        };
        let one_of =
            |known: &[&str]| known.contains(&text).then_some(()).ok_or(Status::InvalidArguments);
        match key {
            b"enable_noop" => self.noop = switch()?,
            b"set_noop_interval" => self.noop_interval_s = number(1..=NOOP_INTERVAL_S_MAX)?,
            b"connection_buffer_size" => {
                return Ok(Effect::Window(number(0..=u64::from(u32::MAX))?));
            }
            b"enable_expiry_opcode" => self.expirations = switch()?,
            b"send_stream_end_on_client_close_stream" => self.says_closed = switch()?,
            // Cannot be switched off: either all open streams have IDs or none.
            b"enable_stream_id" if self.speaks(Feature::Collections) => {
                self.stream_ids |= switch()?;
            }
            b"force_value_compression" if self.speaks(Feature::Snappy) => {
                self.forces_compression = switch()?;
            }
            b"change_streams" => match switch()? {
                true if !can_keep_history => return Err(Status::NotSupported),
                history => self.history = history,
            },
            b"max_marker_version" => match text {
                "2.0" => self.marker = MarkerVersion::V2_0,
                "2.2" => self.marker = MarkerVersion::V2_2,
                _ => return Err(Status::InvalidArguments),
            },
            // Slow consumers always continue from the store, whether they allow it or not.
            b"supports_cursor_dropping" => drop(switch()?),
            b"set_priority" => {
                one_of(&["high", "medium", "low"])?;
                self.has_low_priority = text == "low";
                return Ok(Effect::LowPriority(self.has_low_priority));
            }
            // Any backfill order is permitted.
            b"backfill_order" => one_of(&["round-robin", "sequential"])?,
            // An unused permission: backfills are sent in order.
            b"enable_out_of_order_snapshots" => one_of(&["true", "true_with_seqno_advanced"])?,
            _ => return Err(Status::InvalidArguments),
        }
        let interval = self.noop.then_some(self.noop_interval_s * NS_PER_S);
        let concerned = matches!(key, b"enable_noop" | b"set_noop_interval");
        Ok(if concerned { Effect::Heartbeat(interval) } else { Effect::None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(PRODUCER, Features::of(&[Feature::Collections])).unwrap()
    }

    #[test]
    fn only_producers_with_known_flags_are_supported() {
        let open = |flags| Settings::new(flags, Features::default()).map(drop);
        assert_eq!(open(PRODUCER | INCLUDE_XATTRS), Ok(()));
        assert_eq!(open(0), Err(Status::NotSupported), "a consumer");
        assert_eq!(open(2), Err(Status::NotSupported), "a notifier");
        assert_eq!(open(PRODUCER | 0x8000), Err(Status::InvalidArguments));
        assert_eq!(
            open(PRODUCER | NO_VALUE | NO_VALUE_WITH_DATATYPE),
            Err(Status::InvalidArguments)
        );
        let unordered = Features::of(&[Feature::UnorderedExecution]);
        assert_eq!(Settings::new(PRODUCER, unordered).map(drop), Err(Status::NotSupported));
    }

    #[test]
    fn unsupported_settings_are_refused() {
        let mut settings = settings();
        let mut refuses = |key: &str, value: &str| {
            settings.control(key.as_bytes(), value.as_bytes(), true)
                == Err(Status::InvalidArguments)
        };
        for (key, value) in [
            ("change_streams", "yes"),
            ("enable_noop", "yes"),
            ("set_noop_interval", "0"),
            ("set_noop_interval", "0.5"),
            ("set_noop_interval", "10801"),
            ("connection_buffer_size", "-1"),
            ("connection_buffer_size", "4294967296"),
            ("set_priority", "highest"),
            ("force_value_compression", "true"),
            ("max_marker_version", "2"),
            ("max_marker_version", "2.1"),
            ("max_marker_version", "2.3"),
            ("", "true"),
        ] {
            assert!(refuses(key, value), "{key} = {value}");
        }
    }

    #[test]
    fn history_is_only_available_from_a_bucket_that_can_keep_it() {
        let mut settings = settings();
        let mut ask = |can| settings.control(b"change_streams", b"true", can);
        assert_eq!(ask(false), Err(Status::NotSupported));
        assert_eq!(ask(true), Ok(Effect::None));
        assert!(settings.history);
    }

    #[test]
    fn settings_show_their_derived_values() {
        let mut settings = settings();
        let mut control = |key: &str, value: &str| {
            settings.control(key.as_bytes(), value.as_bytes(), false).unwrap()
        };
        assert_eq!(control("set_noop_interval", "20"), Effect::Heartbeat(None));
        assert_eq!(control("enable_noop", "true"), Effect::Heartbeat(Some(20 * NS_PER_S)));
        assert_eq!(control("connection_buffer_size", "1024"), Effect::Window(1024));
        assert_eq!(control("set_priority", "high"), Effect::LowPriority(false));
        assert_eq!(control("set_priority", "low"), Effect::LowPriority(true));
        assert_eq!(control("enable_stream_id", "true"), Effect::None);
        assert_eq!(control("enable_stream_id", "false"), Effect::None);
        assert!(settings.stream_ids, "ids stay once they are given");
        assert!(settings.has_low_priority);
        settings.control(b"set_priority", b"medium", false).unwrap();
        assert!(!settings.has_low_priority);
    }
}
