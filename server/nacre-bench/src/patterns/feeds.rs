//! Feeds: the activities of the users that a user follows, collected when a page is read or when an activity is saved.
//!
//! ```text
//! following::U   ["V", …]                             users that U follows  followers::U   ["T", …]
//! activity::U::T {"author": U, "at": T, …}            index (author, at DESC, content), partitioned by author
//! feed::R::T::U  {"reader": R, "at": T, "friend": U}  index (reader, at DESC, friend, content), partitioned by reader
//! feed::R::N     the same under a number              no index; feedcount::R is the greatest number
//! ```
//!
//! Both indexes keep all entries of one user on one node, in order, and cover the content of a page, so a page of a feed is one
//! range on one node.

use super::client::{Client, Pattern};
use super::retry::Failure;
use crate::hash::unsigned_hash;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time of the first activity: 2015-01-01T00:00:00Z.
const FIRST_S: u64 = 1_420_070_400;
/// A time after all activities.
const END: &str = "9999";

/// The time at which a feed is built, and its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedModel {
    /// When a page is read, from the activities of each followed user.
    Read,
    /// When an activity is saved, as documents that an index keeps in order.
    Write,
    /// When an activity is saved, as numbered documents.
    WriteByNumber,
}

/// The transaction of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Saves an activity.
    Save,
    /// Reads a page of a feed, each time the next one.
    Paginate,
}

/// Sizes of a run, under the names of the original workloads.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of users.
    pub users: u64,
    /// Number of users that each user follows, and of followers of each user.
    pub friends_per_user: u64,
    /// Number of users whose activities are on a page that is built when it is read.
    pub friends_per_page: u64,
    /// Number of activities that each user saves.
    pub activities_per_user: u64,
    /// Number of activities of each of them on such a page.
    pub activities_per_friend: u64,
    /// Number of activities on a page of a feed.
    pub activities_per_page: u64,
    /// Size of the content of an activity, in bytes.
    pub content_bytes: usize,
}

/// Position of a user in pages.
#[derive(Default)]
struct Position {
    /// Number of pages that have been read.
    pages: u64,
    /// The last time that has been read, by followed user; for a feed, under the reader's own name.
    before: BTreeMap<String, String>,
    /// The number of the next entry.
    number: Option<u64>,
}

/// Users with activities and feeds.
pub struct Feeds {
    means: FeedModel,
    work: Work,
    sizes: Sizes,
    bucket: String,
    /// Positions of users in their pages; a client locks that of the user for whom it reads.
    positions: Vec<Mutex<Position>>,
    next_reader: AtomicU64,
}

impl Feeds {
    /// Creates feeds that are not loaded yet.
    pub fn new(means: FeedModel, work: Work, sizes: Sizes, bucket: &str) -> Feeds {
        let positions = (0..sizes.users).map(|_| Mutex::default()).collect();
        let next_reader = AtomicU64::new(0);
        Feeds { means, work, sizes, bucket: bucket.to_owned(), positions, next_reader }
    }

    /// Returns the name of user `number`, from 0, in documents.
    fn name(&self, number: u64) -> String {
        unsigned_hash(number % self.sizes.users + 1).to_string()
    }

    /// Returns the name of the index, its partition key, and its other keys.
    fn index(&self) -> Option<(&'static str, &'static str, &'static str)> {
        match self.means {
            FeedModel::Read => Some(("patterns_activity", "author", "content")),
            FeedModel::Write => Some(("patterns_feed", "reader", "friend, content")),
            FeedModel::WriteByNumber => None,
        }
    }

    /// Returns the statement for a page: activities of one user before a time, newest first.
    fn statement(&self) -> Option<String> {
        let (_, by, rest) = self.index()?;
        let bucket = &self.bucket;
        Some(format!(
            "SELECT f.`at`, f.{} FROM `{bucket}` AS f WHERE f.{by} = $1 AND f.`at` < $2 ORDER BY f.`at` DESC LIMIT $3",
            rest.replace(", ", ", f.")
        ))
    }

    fn range(
        &self,
        client: &mut Client,
        of: &str,
        before: &str,
        limit: u64,
        consistency: &str,
    ) -> Result<Vec<Value>, Failure> {
        let Some(statement) = self.statement() else { return Ok(Vec::new()) };
        let request = json!({"args": [of, before, limit], "scan_consistency": consistency});
        client.submit(|connections| connections.execute(&statement, request.clone()))
    }

    /// Writes the users that a user follows, and the user's followers. Users form a ring in which each follows the next ones.
    fn save_friends(&self, client: &mut Client, user: u64) -> Result<(), String> {
        let Sizes { users, friends_per_user, .. } = self.sizes;
        let steps = 1..=friends_per_user;
        let following: Vec<String> = steps.clone().map(|step| self.name(user + step)).collect();
        let followers: Vec<String> =
            steps.map(|step| self.name(user + users * step - step)).collect();
        let name = self.name(user);
        client.transaction("SAVE-FRIEND", |client| {
            for (list, names) in [("following", following), ("followers", followers)] {
                let (key, names) = (format!("{list}::{name}"), json!(names).to_string());
                client.submit(|connections| connections.upsert(&key, &names))?;
            }
            Ok(())
        })
    }

    /// Saves activity `number`; users take turns.
    fn save(&self, client: &mut Client, number: u64) -> Result<(), String> {
        let (author, at) = (self.name(number), time_of(number));
        let content = client.text(self.sizes.content_bytes);
        client.transaction("SAVE-ACTIVITY", |client| {
            let key = format!("activity::{author}::{at}");
            let activity = json!({"author": author, "at": at, "content": content}).to_string();
            client.submit(|connections| connections.upsert(&key, &activity))?;
            if self.means == FeedModel::Read {
                return Ok(());
            }
            let key = format!("followers::{author}");
            let followers = client.submit(|connections| connections.get(&key))?;
            let followers: Vec<String> = serde_json::from_slice(&followers.value)
                .map_err(|error| Failure::new("answer", error.to_string()))?;
            for reader in followers {
                let entry =
                    json!({"reader": reader, "at": at, "friend": author, "content": content});
                let key = match self.means {
                    FeedModel::WriteByNumber => {
                        let counter = format!("feedcount::{reader}");
                        let number = client
                            .submit(|connections| connections.count(0, &counter, 1, Some(1)))?;
                        format!("feed::{reader}::{number}")
                    }
                    _ => format!("feed::{reader}::{at}::{author}"),
                };
                let entry = entry.to_string();
                client.submit(|connections| connections.upsert(&key, &entry))?;
            }
            Ok(())
        })
    }

    /// Reads a page of a reader. Returns its number of entries.
    fn page(
        &self,
        client: &mut Client,
        reader: u64,
        position: &mut Position,
    ) -> Result<u64, Failure> {
        match self.means {
            FeedModel::Read => self.page_of_friends(client, reader, position),
            FeedModel::Write => {
                let (name, limit) = (self.name(reader), self.sizes.activities_per_page);
                self.part_of_page(client, name, limit, position)
            }
            FeedModel::WriteByNumber => self.page_of_numbers(client, reader, position),
        }
    }

    /// Reads the next activities of one user or one feed.
    fn part_of_page(
        &self,
        client: &mut Client,
        of: String,
        limit: u64,
        position: &mut Position,
    ) -> Result<u64, Failure> {
        let before = position.before.get(&of).map_or(END, String::as_str);
        let rows = self.range(client, &of, before, limit, "not_bounded")?;
        if let Some(at) = rows.last().and_then(|row| row["at"].as_str()) {
            position.before.insert(of, at.to_owned());
        }
        Ok(rows.len() as u64)
    }

    fn page_of_friends(
        &self,
        client: &mut Client,
        reader: u64,
        position: &mut Position,
    ) -> Result<u64, Failure> {
        let Sizes { friends_per_user, friends_per_page, activities_per_friend, .. } = self.sizes;
        let turns = friends_per_user.div_ceil(friends_per_page);
        let first = position.pages % turns * friends_per_page;
        let friends = first..(first + friends_per_page).min(friends_per_user);
        let paths: Vec<String> = friends.map(|friend| format!("[{friend}]")).collect();
        let key = format!("following::{}", self.name(reader));
        let friends = client.submit(|connections| connections.look_up(&key, &paths))?;
        let mut found = 0;
        for friend in friends {
            let friend: String = serde_json::from_slice(&friend)
                .map_err(|error| Failure::new("answer", error.to_string()))?;
            found += self.part_of_page(client, friend, activities_per_friend, position)?;
        }
        Ok(found)
    }

    fn page_of_numbers(
        &self,
        client: &mut Client,
        reader: u64,
        position: &mut Position,
    ) -> Result<u64, Failure> {
        let reader = self.name(reader);
        let last = match position.number {
            Some(number) => number,
            None => {
                let counter = format!("feedcount::{reader}");
                let count = client.submit(|connections| connections.get(&counter))?;
                String::from_utf8_lossy(&count.value).parse().unwrap_or(0)
            }
        };
        let first = last.saturating_sub(self.sizes.activities_per_page);
        position.number = Some(first).filter(|first| *first > 0);
        let keys: Vec<_> =
            (first + 1..=last).rev().map(|number| format!("feed::{reader}::{number}")).collect();
        Ok(client.submit(|connections| connections.get_many(&keys))? as u64)
    }

    /// Returns the number of pages until a reader has seen everything.
    fn pages_per_user(&self) -> u64 {
        let Sizes { friends_per_user, activities_per_user, activities_per_page, .. } = self.sizes;
        let Sizes { friends_per_page, activities_per_friend, .. } = self.sizes;
        match self.means {
            FeedModel::Read => {
                friends_per_user.div_ceil(friends_per_page)
                    * activities_per_user.div_ceil(activities_per_friend)
            }
            _ => (friends_per_user * activities_per_user).div_ceil(activities_per_page),
        }
    }
}

impl Pattern for Feeds {
    fn prepare(&self, client: &mut Client) -> Result<(), Failure> {
        let Some((index, by, rest)) = self.index() else { return Ok(()) };
        let create = format!(
            "CREATE INDEX {index} IF NOT EXISTS ON `{}`({by}, `at` DESC, {rest}) PARTITION BY HASH({by})",
            self.bucket
        );
        client.connections.query(&json!({ "statement": create })).map(drop)
    }

    fn loads(&self) -> u64 {
        let Sizes { users, activities_per_user, .. } = self.sizes;
        match self.work {
            Work::Save => users,
            Work::Paginate => users + users * activities_per_user,
        }
    }

    fn load(&self, client: &mut Client, number: u64) -> Result<(), String> {
        match number.checked_sub(self.sizes.users) {
            None => self.save_friends(client, number),
            Some(activity) => self.save(client, activity),
        }
    }

    fn settle(&self, client: &mut Client) -> Result<(), Failure> {
        self.range(client, &self.name(0), END, 1, "request_plus").map(drop)
    }

    fn transact(&self, client: &mut Client, number: u64) -> Result<(), String> {
        if self.work == Work::Save {
            return self.save(client, number);
        }
        // The next reader for whom no other client is reading.
        let (reader, mut position) = loop {
            let reader = self.next_reader.fetch_add(1, Ordering::Relaxed) % self.sizes.users;
            if let Ok(position) = self.positions[reader as usize].try_lock() {
                break (reader, position);
            }
            std::thread::yield_now();
        };
        if position.pages == self.pages_per_user() {
            *position = Position::default();
        }
        client.transaction("PAGINATE-FEED", |client| {
            let found = self.page(client, reader, &mut position)?;
            position.pages += 1;
            match found {
                0 => Err(Failure::new("answer", "a page is empty: load first")),
                _ => Ok(()),
            }
        })
    }
}

/// Returns the time of an activity, one second after the previous one.
fn time_of(number: u64) -> String {
    let seconds = FIRST_S + number;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Returns year, month and day for a number of days since 1970-01-01.
///
/// Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that a leap day is the last day of its year; all eras of 400 years are alike.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    (era * 400 + year + u64::from(is_next_year), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_are_a_second_apart() {
        assert_eq!(time_of(0), "2015-01-01T00:00:00Z");
        assert_eq!(time_of(59 + 23 * 3600 + 59 * 60), "2015-01-01T23:59:59Z");
        // Across a leap day.
        assert_eq!(time_of((365 + 31 + 28) * 86_400), "2016-02-29T00:00:00Z");
        assert_eq!(time_of((365 + 366) * 86_400), "2017-01-01T00:00:00Z");
    }

    #[test]
    fn followers_and_followees_are_inverse() {
        let sizes = Sizes {
            users: 10,
            friends_per_user: 3,
            friends_per_page: 10,
            activities_per_user: 8,
            activities_per_friend: 1,
            content_bytes: 1,
            activities_per_page: 10,
        };
        let feeds = Feeds::new(FeedModel::Write, Work::Save, sizes, "b");
        let following = |user: u64| (1..=3).map(|step| feeds.name(user + step)).collect();
        let all: Vec<Vec<String>> = (0..10).map(following).collect();
        for user in 0..10 {
            for step in 1..=3 {
                let follower = (user + 10 * step - step) % 10;
                assert!(all[follower as usize].contains(&feeds.name(user)), "{user} {follower}");
            }
        }
        assert_eq!(feeds.pages_per_user(), 3);
    }
}
