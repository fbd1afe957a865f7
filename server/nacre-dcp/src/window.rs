//! Flow control: limits the bytes in flight to a consumer that acknowledges them.

/// The unacknowledged bytes, and the window that limits them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// The window in bytes; 0 for a consumer that acknowledges nothing.
    size: u64,
    unacknowledged: u64,
}

impl Window {
    /// Sets the window to `bytes`; 0 removes the limit, and nothing needs to be acknowledged.
    pub fn resize(&mut self, bytes: u64) {
        if self.size == 0 {
            self.unacknowledged = 0;
        }
        self.size = bytes;
    }

    /// Returns true if another message may be sent. The last message may exceed the window.
    pub fn has_room(&self) -> bool {
        self.size == 0 || self.unacknowledged < self.size
    }

    /// Adds the bytes of a message that was sent.
    pub fn sent(&mut self, bytes: usize) {
        if self.size > 0 {
            self.unacknowledged += bytes as u64;
        }
    }

    /// Subtracts acknowledged bytes. Returns false and changes nothing when they exceed the unacknowledged bytes.
    pub fn acknowledge(&mut self, bytes: u64) -> bool {
        let rest = self.unacknowledged.checked_sub(bytes);
        self.unacknowledged = rest.unwrap_or(self.unacknowledged);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_message_goes_beyond_the_window() {
        let mut window = Window::default();
        window.sent(1 << 30);
        assert!(window.has_room(), "no window was agreed");
        window.resize(100);
        assert!(window.has_room());
        window.sent(99);
        assert!(window.has_room());
        window.sent(5000);
        assert!(!window.has_room());
        assert!(window.acknowledge(5000));
        assert!(window.has_room());
    }

    #[test]
    fn unsent_bytes_cannot_be_acknowledged() {
        let mut window = Window::default();
        window.resize(100);
        window.sent(100);
        assert!(!window.acknowledge(101));
        assert!(!window.has_room(), "nothing was noted");
        assert!(window.acknowledge(100));
        assert!(!window.acknowledge(1));
    }
}
