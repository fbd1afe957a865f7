//! Flow control: bounds the bytes on their way to a consumer that acknowledges them.

/// The bytes that were sent and not yet acknowledged, and how many there may be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// 0 for a consumer that acknowledges nothing.
    size: u64,
    unacknowledged: u64,
}

impl Window {
    /// Allows `bytes` on their way; 0 is any number of them, and nothing to acknowledge.
    pub fn resize(&mut self, bytes: u64) {
        if self.size == 0 {
            self.unacknowledged = 0;
        }
        self.size = bytes;
    }

    /// Returns true if another message may be sent. One may go beyond the window, however large it is.
    pub fn has_room(&self) -> bool {
        self.size == 0 || self.unacknowledged < self.size
    }

    /// Notes that a message was sent.
    pub fn sent(&mut self, bytes: usize) {
        if self.size > 0 {
            self.unacknowledged += bytes as u64;
        }
    }

    /// Notes that the consumer has taken in so much. False, and nothing is noted, when that is more than was sent.
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
    fn nobody_acknowledges_what_was_not_sent() {
        let mut window = Window::default();
        window.resize(100);
        window.sent(100);
        assert!(!window.acknowledge(101));
        assert!(!window.has_room(), "nothing was noted");
        assert!(window.acknowledge(100));
        assert!(!window.acknowledge(1));
    }
}
