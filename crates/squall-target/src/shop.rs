//! The shop: a fixed catalogue, rendered once, and tokens and orders that carry their own content.
//! It stores nothing per customer, so its memory does not grow under load.

use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Products on one page.
const PAGE_SIZE: usize = 20;
/// Products in all.
const PRODUCT_COUNT: usize = 400;
/// Largest quantity of one order.
const MAX_QUANTITY: u64 = 999;

/// The catalogue and the counters of tokens and orders.
#[derive(Debug)]
pub(crate) struct Shop {
    products: Vec<Bytes>,
    pages: Vec<Bytes>,
    logins: AtomicU64,
    orders: AtomicU64,
}

impl Shop {
    pub(crate) fn new() -> Shop {
        let products: Vec<Value> = (1..=PRODUCT_COUNT).map(product_json).collect();
        let page = |(at, items): (usize, &[Value])| json!({ "page": at + 1, "pages": PRODUCT_COUNT / PAGE_SIZE, "total": PRODUCT_COUNT, "products": items });
        Shop {
            pages: products.chunks(PAGE_SIZE).enumerate().map(page).map(render).collect(),
            products: products.into_iter().map(render).collect(),
            logins: AtomicU64::new(0),
            orders: AtomicU64::new(0),
        }
    }

    /// Page `number` of the catalogue, from 1.
    pub(crate) fn page(&self, number: usize) -> Option<Bytes> {
        self.pages.get(number.checked_sub(1)?).cloned()
    }

    pub(crate) fn product(&self, id: &str) -> Option<Bytes> {
        self.products.get(id.parse::<usize>().ok()?.checked_sub(1)?).cloned()
    }

    /// A token for anyone who gives a name and a password other than `wrong`.
    pub(crate) fn login(&self, body: &[u8]) -> Result<Bytes, ShopError> {
        let body: Value = serde_json::from_slice(body).map_err(|_| ShopError::Malformed("the body is not JSON"))?;
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (Some(username), Some(password)) = (text("username"), text("password")) else {
            return Err(ShopError::Malformed("give a username and a password"));
        };
        if password == "wrong" {
            return Err(ShopError::Unauthorized("the password is wrong"));
        }
        let number = self.logins.fetch_add(1, Relaxed) + 1;
        let token = format!("shop.{number:x}.{:x}", token_checksum(number));
        let answer = json!({ "access_token": token, "token_type": "bearer", "expires_in": 3600, "username": username });
        Ok(render(answer))
    }

    /// Whether an `Authorization` header carries a token of this shop.
    pub(crate) fn is_valid_token(&self, authorization: Option<&[u8]>) -> bool {
        let token = authorization.and_then(|value| std::str::from_utf8(value).ok()?.strip_prefix("Bearer shop."));
        let parts = token.and_then(|token| token.split_once('.'));
        let numbers = parts.and_then(|(number, seal)| Some((hex(number)?, hex(seal)?)));
        numbers.is_some_and(|(number, seal)| number <= self.logins.load(Relaxed) && seal == token_checksum(number))
    }

    /// Accepts an order. The id encodes what was ordered.
    pub(crate) fn place_order(&self, body: &[u8]) -> Result<Bytes, ShopError> {
        let body: Value = serde_json::from_slice(body).map_err(|_| ShopError::Malformed("the body is not JSON"))?;
        let product =
            body.get("product_id").and_then(Value::as_u64).filter(|id| (1..=PRODUCT_COUNT as u64).contains(id));
        let product = product.ok_or(ShopError::Malformed("product_id is a number from 1 to 400"))?;
        let quantity = body.get("quantity").map_or(Some(1), Value::as_u64).filter(|n| (1..=MAX_QUANTITY).contains(n));
        let quantity = quantity.ok_or(ShopError::Malformed("quantity is a number from 1 to 999"))?;
        let number = self.orders.fetch_add(1, Relaxed) + 1;
        Ok(render(order_json(number, quantity, product)))
    }

    /// The order with this id, if this shop issued it.
    pub(crate) fn find_order(&self, id: &str) -> Option<Bytes> {
        let id: u64 = id.parse().ok()?;
        let (number, quantity, product) = (id / 1_000_000, id / 1000 % 1000, id % 1000);
        let given = (1..=self.orders.load(Relaxed)).contains(&number);
        (given && quantity > 0 && (1..=PRODUCT_COUNT as u64).contains(&product))
            .then(|| render(order_json(number, quantity, product)))
    }
}

/// Why the shop rejects a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ShopError {
    Malformed(&'static str),
    Unauthorized(&'static str),
}

fn render(value: Value) -> Bytes {
    value.to_string().into()
}

fn price_cents(id: u64) -> u64 {
    199 + id * 7919 % 9800
}

fn product_json(id: usize) -> Value {
    const KINDS: [&str; 8] = ["Lamp", "Chair", "Kettle", "Umbrella", "Radio", "Scarf", "Teapot", "Compass"];
    const LOOKS: [&str; 5] = ["Amber", "Blue", "Copper", "Ivory", "Slate"];
    let name = format!("{} {} {id}", LOOKS[id % LOOKS.len()], KINDS[id % KINDS.len()]);
    json!({ "id": id, "name": name, "price_cents": price_cents(id as u64), "in_stock": !id.is_multiple_of(13) })
}

fn order_json(number: u64, quantity: u64, product: u64) -> Value {
    let id = (number * 1000 + quantity) * 1000 + product;
    let total = quantity * price_cents(product);
    json!({ "id": id, "product_id": product, "quantity": quantity, "total_cents": total, "status": "accepted" })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// A checksum that makes invented tokens fail. It gives no security: this is a shop for tests.
fn token_checksum(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31) ^ 0x5155_414C_4C21
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(answer: &[u8], name: &str) -> Value {
        serde_json::from_slice::<Value>(answer).expect("JSON")[name].clone()
    }

    #[test]
    fn a_token_from_login_opens_and_a_made_up_one_does_not() {
        let shop = Shop::new();
        let answer = shop.login(br#"{"username":"ann","password":"x"}"#).unwrap();
        let token = field(&answer, "access_token").as_str().unwrap().to_owned();
        assert!(shop.is_valid_token(Some(format!("Bearer {token}").as_bytes())));
        for wrong in ["Bearer shop.1.1", "Bearer shop.ff.0", "Basic x", "Bearer ", ""] {
            assert!(!shop.is_valid_token(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!shop.is_valid_token(None));
    }

    #[test]
    fn login_reads_its_body() {
        let shop = Shop::new();
        assert!(matches!(shop.login(b"hello"), Err(ShopError::Malformed(_))));
        assert!(matches!(shop.login(br#"{"username":"ann"}"#), Err(ShopError::Malformed(_))));
        let wrong = shop.login(br#"{"username":"ann","password":"wrong"}"#);
        assert!(matches!(wrong, Err(ShopError::Unauthorized(_))));
    }

    #[test]
    fn an_order_is_found_again_by_its_id() {
        let shop = Shop::new();
        let placed = shop.place_order(br#"{"product_id":7,"quantity":3}"#).unwrap();
        let id = field(&placed, "id").to_string();
        assert_eq!(shop.find_order(&id), Some(placed));
        assert_eq!(shop.find_order("2003007"), None, "never given out");
        for bad in ["{}", r#"{"product_id":0}"#, r#"{"product_id":401}"#, r#"{"product_id":1,"quantity":0}"#, "x"] {
            assert!(shop.place_order(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_catalogue_has_twenty_pages() {
        let shop = Shop::new();
        assert!(shop.page(0).is_none() && shop.page(21).is_none());
        assert_eq!(field(&shop.page(20).unwrap(), "products").as_array().unwrap().len(), PAGE_SIZE);
        assert_eq!(field(&shop.product("400").unwrap(), "id"), 400);
        assert!(shop.product("0").is_none() && shop.product("401").is_none() && shop.product("x").is_none());
    }
}
