//! The tables, document by document.

use crate::calendar::{DAY, seconds, text};
use crate::random::Random;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Names of the tables.
pub const TABLES: [&str; 11] = [
    "region",
    "nation",
    "supplier",
    "item",
    "warehouse",
    "district",
    "stock",
    "customer",
    "history",
    "neworder",
    "orders",
];

/// Districts per warehouse.
const DISTRICTS: i64 = 10;
/// Customers and orders per district.
const CUSTOMERS: i64 = 3000;
/// The last orders of a district are not delivered yet: this many per thousand.
const NEW_PER_MILLE: i64 = 300;
/// Number of suppliers.
const SUPPLIERS: i64 = 10_000;

/// Size and seed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Warehouses.
    pub warehouses: i64,
    /// Divides the numbers of items, customers and orders.
    pub divisor: i64,
    /// Seed.
    pub seed: u64,
}

impl Options {
    fn items(self) -> i64 {
        100_000 / self.divisor
    }

    fn customers(self) -> i64 {
        CUSTOMERS / self.divisor
    }
}

const REGIONS: [&str; 5] = ["Africa", "America", "Asia", "Europe", "Middle East"];

/// The first key of a run of nations, and the nations with the numbers of their regions. A key is the code point of a letter or
/// digit.
const NATIONS: [(i64, &[(&str, usize)]); 3] = [
    (
        48,
        &[
            ("Algeria", 0),
            ("Argentina", 1),
            ("Brazil", 1),
            ("Canada", 1),
            ("Egypt", 4),
            ("Ethiopia", 0),
            ("France", 3),
            ("Germany", 3),
            ("India", 2),
            ("Indonesia", 2),
        ],
    ),
    (
        65,
        &[
            ("Iran", 4),
            ("Iraq", 4),
            ("Japan", 2),
            ("Jordan", 4),
            ("Kenya", 0),
            ("Morocco", 0),
            ("Mozambique", 0),
            ("Peru", 1),
            ("China", 2),
            ("Kuwait", 4),
            ("Saudi Arabia", 4),
            ("Vietnam", 2),
            ("Russia", 3),
            ("United Kingdom", 3),
            ("United States", 1),
            ("Lebanon", 4),
            ("Oman", 4),
            ("Qatar", 4),
            ("Mexico", 1),
            ("Turkey", 4),
            ("Chile", 1),
            ("Italy", 3),
            ("South Africa", 0),
            ("South Korea", 2),
            ("Colombia", 1),
            ("Spain", 3),
        ],
    ),
    (
        97,
        &[
            ("Ukraine", 3),
            ("Ecuador", 1),
            ("Sudan", 0),
            ("Uzbekistan", 2),
            ("Malaysia", 2),
            ("Venezuela", 1),
            ("Tanzania", 0),
            ("Afghanistan", 2),
            ("North Korea", 2),
            ("Taiwan", 2),
            ("Ghana", 0),
            ("Ivory Coast", 0),
            ("Syria", 4),
            ("Madagascar", 0),
            ("Cameroon", 0),
            ("Nigeria", 0),
            ("Bolivia", 1),
            ("Netherlands", 3),
            ("Cambodia", 2),
            ("Belgium", 3),
            ("Greece", 3),
            ("Uruguay", 1),
            ("Israel", 4),
            ("Finland", 3),
            ("Singapore", 2),
            ("Norway", 3),
        ],
    ),
];

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Passes each document to `take`: table, key, JSON text.
pub fn generate(options: Options, take: &mut dyn FnMut(&str, &str, &str)) {
    regions(take);
    suppliers(options, take);
    items(options, take);
    for warehouse in 1..=options.warehouses {
        stock(options, warehouse, take);
        let mut ytd = 0;
        for district in 1..=DISTRICTS {
            ytd += shop(options, warehouse, district, take);
        }
        let mut random = Random::new(options.seed, &format!("warehouse {warehouse}"));
        let address = address(&mut random, "w");
        let (name, tax) = (random.letters(6, 10), hundredths(random.between(0, 20)));
        let json = format!(
            "{{\"w_id\":{warehouse},\"w_name\":\"{name}\",{address},\"w_tax\":{tax},\"w_ytd\":{}}}",
            hundredths(ytd)
        );
        take("warehouse", &warehouse.to_string(), &json);
    }
}

/// Returns the versions of documents after a period of work, by table and key; `None` for deleted ones.
///
/// A third of the documents is replaced by the document that another seed generates for the key, and one in 33 is deleted.
/// Regions and nations stay.
pub fn changes(options: Options) -> HashMap<(String, String), Option<String>> {
    let (mut changes, mut count) = (HashMap::new(), 0);
    let other = Options { seed: options.seed + 1, ..options };
    generate(other, &mut |table, key, json| {
        if matches!(table, "region" | "nation") {
            return;
        }
        count += 1;
        let place = || (table.to_owned(), key.to_owned());
        match (count % 33, count % 3) {
            (1, _) => drop(changes.insert(place(), None)),
            (_, 0) => drop(changes.insert(place(), Some(json.to_owned()))),
            _ => {}
        }
    });
    changes
}

/// Formats a number of hundredths with two decimal places.
fn hundredths(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", number.abs() / 100, number.abs() % 100)
}

fn address(random: &mut Random, prefix: &str) -> String {
    let (first, second, city) =
        (random.letters(10, 20), random.letters(10, 20), random.letters(10, 20));
    let (state, zip) = (random.letters(2, 2), random.digits(4) + "11111");
    format!(
        "\"{prefix}_street_1\":\"{first}\",\"{prefix}_street_2\":\"{second}\",\"{prefix}_city\":\"{city}\",\
         \"{prefix}_state\":\"{state}\",\"{prefix}_zip\":\"{zip}\""
    )
}

/// Returns letters, one in ten with a word in between.
fn data(random: &mut Random) -> String {
    let mut letters = random.letters(26, 50);
    if random.between(1, 10) == 1 {
        let at = random.between(0, letters.len() as i64 - 8) as usize;
        letters.replace_range(at..at + 8, "ORIGINAL");
    }
    letters
}

fn regions(take: &mut dyn FnMut(&str, &str, &str)) {
    for (key, name) in REGIONS.iter().enumerate() {
        let json = format!("{{\"r_regionkey\":{key},\"r_name\":\"{name}\",\"r_comment\":\"\"}}");
        take("region", &key.to_string(), &json);
    }
    for (first, nations) in NATIONS {
        for (key, (name, region)) in (first..).zip(nations) {
            let json = format!(
                "{{\"n_nationkey\":{key},\"n_name\":\"{name}\",\"n_regionkey\":{region},\"n_comment\":\"\"}}"
            );
            take("nation", &key.to_string(), &json);
        }
    }
}

fn suppliers(options: Options, take: &mut dyn FnMut(&str, &str, &str)) {
    let keys: Vec<i64> =
        NATIONS.iter().flat_map(|(first, nations)| (*first..).take(nations.len())).collect();
    let mut random = Random::new(options.seed, "supplier");
    for key in 1..=SUPPLIERS {
        let nation = keys[random.between(0, keys.len() as i64 - 1) as usize];
        let (address, phone) = (random.letters(10, 20), random.digits(12));
        let balance = hundredths(random.between(-99_999, 999_999));
        let mut comment = random.letters(25, 100);
        if random.between(1, 1000) <= 5 {
            comment.push_str("Customer Complaints");
        }
        let json = format!(
            "{{\"su_suppkey\":{key},\"su_name\":\"Supplier#{key:09}\",\"su_address\":\"{address}\",\
             \"su_nationkey\":{nation},\"su_phone\":\"{phone}\",\"su_acctbal\":{balance},\"su_comment\":\"{comment}\"}}"
        );
        take("supplier", &key.to_string(), &json);
    }
}

fn items(options: Options, take: &mut dyn FnMut(&str, &str, &str)) {
    let mut random = Random::new(options.seed, "item");
    for id in 1..=options.items() {
        let (image, name) = (random.between(1, 10_000), random.letters(14, 24));
        let (price, data) = (hundredths(random.between(100, 10_000)), data(&mut random));
        let json = format!(
            "{{\"i_id\":{id},\"i_im_id\":{image},\"i_name\":\"{name}\",\"i_price\":{price},\"i_data\":\"{data}\"}}"
        );
        take("item", &id.to_string(), &json);
    }
}

fn stock(options: Options, warehouse: i64, take: &mut dyn FnMut(&str, &str, &str)) {
    let mut random = Random::new(options.seed, &format!("stock {warehouse}"));
    for id in 1..=options.items() {
        let (quantity, orders) = (random.between(10, 100), random.between(10, 3000));
        let mut json =
            format!("{{\"s_i_id\":{id},\"s_w_id\":{warehouse},\"s_quantity\":{quantity}");
        for district in 1..=DISTRICTS {
            let letters = random.letters(24, 24);
            let _ = write!(json, ",\"s_dist_{district:02}\":\"{letters}\"");
        }
        let data = data(&mut random);
        let _ = write!(
            json,
            ",\"s_ytd\":0,\"s_order_cnt\":{orders},\"s_remote_cnt\":0,\"s_data\":\"{data}\"}}"
        );
        take("stock", &format!("{warehouse}.{id}"), &json);
    }
}

/// Generates the customers, orders and payments of a district. Returns the payments in hundredths.
fn shop(
    options: Options,
    warehouse: i64,
    district: i64,
    take: &mut dyn FnMut(&str, &str, &str),
) -> i64 {
    const PAID: i64 = 1000;
    let count = options.customers();
    let mut random = Random::new(options.seed, &format!("district {warehouse}.{district}"));
    let (start, end) = (seconds(2014, 1, 1), seconds(2020, 12, 31) - 151 * DAY);
    let since: Vec<i64> = (0..count).map(|_| random.between(start, end)).collect();
    let buyers = random.permutation(count);
    let first_new = count - count * NEW_PER_MILLE / 1000 + 1;
    let (mut balances, mut total) = (BTreeMap::new(), 0);
    for (id, customer) in (1..).zip(&buyers) {
        let entry = since[*customer as usize - 1];
        let is_new = id >= first_new;
        let amount =
            order(options, [warehouse, district, id, *customer], entry, is_new, &mut random, take);
        total += amount;
        balances.insert(*customer, if is_new { -PAID } else { total - PAID });
        if is_new {
            let json =
                format!("{{\"no_o_id\":{id},\"no_d_id\":{district},\"no_w_id\":{warehouse}}}");
            take("neworder", &format!("{warehouse}.{district}.{id}"), &json);
        }
    }
    for id in 1..=count {
        customer(
            &mut random,
            [warehouse, district, id],
            since[id as usize - 1],
            balances[&id],
            take,
        );
        let (date, data) = (text(since[id as usize - 1]), random.letters(12, 24));
        let json = format!(
            "{{\"h_c_id\":{id},\"h_c_d_id\":{district},\"h_c_w_id\":{warehouse},\"h_d_id\":{district},\
             \"h_w_id\":{warehouse},\"h_date\":\"{date}\",\"h_amount\":{},\"h_data\":\"{data}\"}}",
            hundredths(PAID)
        );
        take("history", &format!("{warehouse}.{district}.{id}"), &json);
    }
    let (name, address) = (random.letters(6, 10), address(&mut random, "d"));
    let (tax, ytd) = (hundredths(random.between(0, 20)), PAID * count);
    let json = format!(
        "{{\"d_id\":{district},\"d_w_id\":{warehouse},\"d_name\":\"{name}\",{address},\"d_tax\":{tax},\
         \"d_ytd\":{},\"d_next_o_id\":{}}}",
        hundredths(ytd),
        count + 1
    );
    take("district", &format!("{warehouse}.{district}"), &json);
    ytd
}

fn customer(
    random: &mut Random,
    [warehouse, district, id]: [i64; 3],
    since: i64,
    balance: i64,
    take: &mut dyn FnMut(&str, &str, &str),
) {
    let number = if id <= 1000 { id - 1 } else { random.uneven(255, 0, 999) };
    let last: String = [number / 100, number / 10 % 10, number % 10]
        .iter()
        .map(|at| SYLLABLES[*at as usize])
        .collect();
    let (first, address) = (random.letters(8, 16), address(random, "c"));
    let phone = random.digits(16);
    let credit = if random.between(1, 10) == 1 { "BC" } else { "GC" };
    let (discount, data) = (hundredths(random.between(0, 50)), random.letters(300, 500));
    let json = format!(
        "{{\"c_id\":{id},\"c_d_id\":{district},\"c_w_id\":{warehouse},\"c_first\":\"{first}\",\"c_middle\":\"OE\",\
         \"c_last\":\"{last}\",{address},\"c_phone\":\"{phone}\",\"c_since\":\"{}\",\"c_credit\":\"{credit}\",\
         \"c_credit_lim\":50000,\"c_discount\":{discount},\"c_balance\":{},\"c_ytd_payment\":10.00,\
         \"c_payment_cnt\":1,\"c_delivery_cnt\":0,\"c_data\":\"{data}\"}}",
        text(since),
        hundredths(balance)
    );
    take("customer", &format!("{warehouse}.{district}.{id}"), &json);
}

/// Generates an order with its lines. Returns the sum of its amounts in hundredths.
fn order(
    options: Options,
    [warehouse, district, id, customer]: [i64; 4],
    entry: i64,
    is_new: bool,
    random: &mut Random,
    take: &mut dyn FnMut(&str, &str, &str),
) -> i64 {
    let (carrier, count) = (if is_new { 0 } else { random.between(1, 10) }, random.between(5, 15));
    let mut json = format!(
        "{{\"o_id\":{id},\"o_d_id\":{district},\"o_w_id\":{warehouse},\"o_c_id\":{customer},\
         \"o_entry_d\":\"{}\",\"o_carrier_id\":{carrier},\"o_ol_cnt\":{count},\"o_all_local\":1,\"o_orderline\":[",
        text(entry)
    );
    let mut total = 0;
    for number in 0..count {
        let has_amount = is_new || id % 5 == 0;
        let amount = if has_amount { random.between(1, 500_000) } else { 0 };
        total += amount;
        let delivery = entry + random.between(2 * DAY, 151 * DAY);
        let delivery = if is_new { "null".to_owned() } else { format!("\"{}\"", text(delivery)) };
        let _ = write!(
            json,
            "{}{{\"ol_number\":{number},\"ol_i_id\":{},\"ol_supply_w_id\":{warehouse},\"ol_delivery_d\":{delivery},\
             \"ol_quantity\":{},\"ol_amount\":{},\"ol_dist_info\":\"{}\"}}",
            if number == 0 { "" } else { "," },
            random.between(1, options.items()),
            random.between(1, 50),
            hundredths(amount),
            random.letters(24, 24)
        );
    }
    json.push_str("]}");
    take("orders", &format!("{warehouse}.{district}.{id}"), &json);
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(options: Options) -> (BTreeMap<String, usize>, u64) {
        let (mut counts, mut hash) = (BTreeMap::new(), 0_u64);
        generate(options, &mut |table, key, json| {
            *counts.entry(table.to_owned()).or_insert(0) += 1;
            for byte in key.bytes().chain(json.bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        });
        (counts, hash)
    }

    #[test]
    fn changes_replace_a_third_and_delete_some() {
        let options = Options { warehouses: 1, divisor: 100, seed: 1 };
        let (all, changes) = (counted(options).0, changes(options));
        let count: usize = all.values().sum();
        let deleted = changes.values().filter(|json| json.is_none()).count();
        assert!(deleted * 40 > count && deleted * 30 < count, "{deleted} of {count}");
        let replaced = changes.len() - deleted;
        assert!(replaced * 4 > count && replaced * 5 < count * 2, "{replaced} of {count}");
        // Some new orders of the other seed have keys of the first seed: they replace its orders, and none is added.
        let mut keys = std::collections::HashSet::new();
        generate(options, &mut |table, key, _| {
            keys.insert((table.to_owned(), key.to_owned()));
        });
        assert!(changes.keys().all(|place| keys.contains(place)));
    }

    #[test]
    fn a_tenth_of_a_warehouse_has_its_counts_and_is_the_same_each_time() {
        let options = Options { warehouses: 1, divisor: 10, seed: 1 };
        let (counts, hash) = counted(options);
        for (table, count) in [
            ("region", 5),
            ("nation", 62),
            ("supplier", 10_000),
            ("item", 10_000),
            ("stock", 10_000),
            ("warehouse", 1),
            ("district", 10),
            ("customer", 3000),
            ("orders", 3000),
            ("history", 3000),
            ("neworder", 900),
        ] {
            assert_eq!(counts[table], count, "{table}");
        }
        assert_eq!(counted(options).1, hash);
        assert_ne!(counted(Options { seed: 2, ..options }).1, hash);
    }
}
