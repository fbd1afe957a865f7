//! A post with comments: in an array of the post, or in documents with consecutively numbered keys.

use super::client::{Client, Pattern};
use super::retry::Failure;
use rand::Rng;

/// Size of the content of a post and of a comment, in bytes.
const POST_BYTES: usize = 2000;
const COMMENT_BYTES: usize = 200;
/// Number of comments on a page.
const PAGE: u64 = 10;

/// Where comments are stored, and how one is added or a page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommentModel {
    /// In the post, which the client reads and writes as a whole.
    WholeList,
    /// In the post; the server appends an element, or returns the elements of a page.
    ListPaths,
    /// Each in a separate document, whose number comes from a counter.
    EnumerableKeys,
}

/// The transaction of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Adds a comment.
    Post,
    /// Reads a page, each time the next one.
    Paginate,
}

/// Comments of one post.
pub struct Comments {
    /// Where they are stored.
    pub means: CommentModel,
    /// The transaction.
    pub work: Work,
    /// UUID of the post.
    pub post: String,
    /// Number of comments that are loaded before pages are read.
    pub loaded: u64,
}

impl Comments {
    fn post_key(&self) -> String {
        format!("post::{}", self.post)
    }

    fn counter_key(&self) -> String {
        format!("commentcount::{}", self.post_key())
    }

    fn comment_key(&self, number: u64) -> String {
        format!("comment::{}:{number}", self.post)
    }

    /// Returns a post whose comments are the last member, so that a client can append one without parsing the others.
    fn post(&self, client: &mut Client, comments: u64) -> String {
        let head = format!(
            r#"{{"doctype":"post","creationDate":"2015-01-01T00:00:00Z","content":"{}""#,
            client.text(POST_BYTES)
        );
        if self.means == CommentModel::EnumerableKeys {
            return head + "}";
        }
        let comments: Vec<String> = (0..comments).map(|_| comment(client)).collect();
        format!(r#"{head},"comments":[{}]}}"#, comments.join(","))
    }

    /// Reads the post, appends to it, and writes it with its CAS; repeats immediately if the post has changed.
    fn append(&self, client: &mut Client, comment: &str) -> Result<(), Failure> {
        let key = self.post_key();
        loop {
            let post = client.submit(|connections| connections.get(&key))?;
            let changed = with_comment(&post.value, comment)?;
            // A CAS mismatch needs no pause: the new version is read immediately, as often as necessary.
            let mut outcome = Ok(());
            client.submit(|connections| match connections.replace(&key, &changed, post.cas) {
                Err(failure) if failure.is_conflict() => {
                    outcome = Err(failure);
                    Ok(())
                }
                other => other.map(drop),
            })?;
            match outcome {
                Ok(()) => return Ok(()),
                Err(_) => client.measurements.conflicts += 1,
            }
        }
    }

    fn add(&self, client: &mut Client, comment: &str) -> Result<(), Failure> {
        match self.means {
            CommentModel::WholeList => self.append(client, comment),
            CommentModel::ListPaths => {
                let key = self.post_key();
                client.submit(|connections| connections.push(&key, "comments", comment)).map(drop)
            }
            CommentModel::EnumerableKeys => {
                let counter = self.counter_key();
                let number =
                    client.submit(|connections| connections.count(0, &counter, 1, None))?;
                let key = self.comment_key(number);
                client.submit(|connections| connections.insert(&key, comment)).map(drop)
            }
        }
    }

    /// Reads the comments after the first `index`. Returns their number, at most a page.
    fn page(&self, client: &mut Client, index: u64) -> Result<usize, Failure> {
        let numbers = index..(index + PAGE).min(self.loaded);
        match self.means {
            CommentModel::WholeList => {
                let key = self.post_key();
                let post = client.submit(|connections| connections.get(&key))?;
                let post: serde_json::Value = serde_json::from_slice(&post.value)
                    .map_err(|error| Failure::new("answer", error.to_string()))?;
                let all = post["comments"].as_array().map_or(&[][..], Vec::as_slice);
                Ok(all.iter().skip(index as usize).take(PAGE as usize).count())
            }
            CommentModel::ListPaths => {
                let (key, paths): (_, Vec<_>) =
                    (self.post_key(), numbers.map(|at| format!("comments[{at}]")).collect());
                Ok(client.submit(|connections| connections.look_up(&key, &paths))?.len())
            }
            CommentModel::EnumerableKeys => {
                let keys: Vec<_> = numbers.map(|at| self.comment_key(at + 1)).collect();
                client.submit(|connections| connections.get_many(&keys))
            }
        }
    }

    /// Writes the post, and for pages of a list its comments.
    fn begin(&self, client: &mut Client) -> Result<(), String> {
        let comments = if self.work == Work::Paginate { self.loaded } else { 0 };
        let (key, post) = (self.post_key(), self.post(client, comments));
        client.transaction("INSERT-POST", |client| {
            client.submit(|connections| connections.upsert(&key, &post))?;
            if self.means == CommentModel::EnumerableKeys {
                let counter = self.counter_key();
                client.submit(|connections| connections.count(0, &counter, 0, Some(0)))?;
            }
            Ok(())
        })
    }
}

impl Pattern for Comments {
    fn loads(&self) -> u64 {
        match (self.work, self.means) {
            (Work::Paginate, CommentModel::EnumerableKeys) => self.loaded,
            _ => 0,
        }
    }

    fn prepare(&self, client: &mut Client) -> Result<(), Failure> {
        let failed = |reason: String| Failure::new("answer", reason);
        self.begin(client).map_err(failed)?;
        client.measurements.failure.take().map_or(Ok(()), Err)
    }

    fn load(&self, client: &mut Client, number: u64) -> Result<(), String> {
        let (key, comment) = (self.comment_key(number + 1), comment(client));
        client.transaction("INSERT-COMMENT", |client| {
            client.submit(|connections| connections.upsert(&key, &comment)).map(drop)
        })
    }

    fn transact(&self, client: &mut Client, _: u64) -> Result<(), String> {
        if self.work == Work::Post {
            let comment = comment(client);
            return client.transaction("INSERT-COMMENT", |client| self.add(client, &comment));
        }
        let index = match client.page {
            Some(index) => index,
            None => client.random.random_range(0..self.loaded) / PAGE * PAGE,
        };
        client.page = Some(if index + PAGE < self.loaded { index + PAGE } else { 0 });
        let expected = (self.loaded - index).min(PAGE) as usize;
        client.transaction("GET-COMMENTS", |client| match self.page(client, index)? {
            found if found == expected => Ok(()),
            found => {
                let reason = format!("a page has {found} comments and not {expected}: load first");
                Err(Failure::new("answer", reason))
            }
        })
    }
}

fn comment(client: &mut Client) -> String {
    format!(
        r#"{{"doctype":"comment","creationDate":"2015-01-01T00:00:00Z","comment":"{}"}}"#,
        client.text(COMMENT_BYTES)
    )
}

/// Appends a comment to a post. Other comments are not parsed, because that would measure the work of the client instead of
/// the server's.
fn with_comment(post: &[u8], comment: &str) -> Result<Vec<u8>, Failure> {
    let head = post
        .strip_suffix(b"]}")
        .ok_or_else(|| Failure::new("answer", "the post does not end with its comments"))?;
    let separator: &[u8] = if head.ends_with(b"[") { b"" } else { b"," };
    Ok([head, separator, comment.as_bytes(), b"]}"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_appended_to_the_existing_ones() {
        let one = with_comment(br#"{"a":1,"comments":[]}"#, "1").unwrap();
        assert_eq!(one, br#"{"a":1,"comments":[1]}"#);
        assert_eq!(with_comment(&one, "2").unwrap(), br#"{"a":1,"comments":[1,2]}"#);
        assert!(with_comment(br#"{"comments":[] }"#, "1").is_err());
    }
}
