//! The shop's pages for browsers: a catalogue, a product with a form, a receipt, and their style sheet,
//! script and picture. It renders HTML and serves nothing; `respond` does.

use bytes::Bytes;
use serde_json::Value;
use std::fmt::Write as _;

/// Path, content type and content of what the pages load.
const ASSETS: [(&str, &str, &str); 3] = [
    ("shop.css", "text/css; charset=utf-8", include_str!("pages/shop.css")),
    ("shop.js", "text/javascript; charset=utf-8", include_str!("pages/shop.js")),
    ("banner.svg", "image/svg+xml", include_str!("pages/banner.svg")),
];

/// The content type and content of an asset.
pub(crate) fn asset(name: &str) -> Option<(&'static str, Bytes)> {
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    found.map(|(_, kind, content)| (*kind, Bytes::from_static(content.as_bytes())))
}

/// The catalogue page with these products.
pub(crate) fn catalogue(page: &Value) -> String {
    let mut list = String::new();
    for product in page["products"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let (id, name, price) = (&product["id"], text(&product["name"]), price(&product["price_cents"]));
        let _ = writeln!(list, "<li><a class=\"product\" href=\"/shop/{id}\">{name}</a><br>{price}</li>");
    }
    let number = page["page"].as_u64().unwrap_or(1);
    let next = match number < page["pages"].as_u64().unwrap_or(1) {
        true => format!("<p><a id=\"next\" href=\"/shop?page={}\">Next page</a></p>", number + 1),
        false => String::new(),
    };
    layout(&format!("Catalogue, page {number}"), &format!("<ul>\n{list}</ul>\n{next}"))
}

/// The page of one product, with a form that orders it.
pub(crate) fn product(product: &Value) -> String {
    let (id, name, price) = (&product["id"], text(&product["name"]), price(&product["price_cents"]));
    let body = format!(
        "<p>{price} <span id=\"in-stock\"></span></p>\n\
         <p><button id=\"stock\" data-product=\"{id}\">Show the stock</button></p>\n\
         <form method=\"post\" action=\"/shop/orders\">\n\
         <input type=\"hidden\" name=\"product_id\" value=\"{id}\">\n\
         <label>Your name <input id=\"name\" name=\"name\" required></label>\n\
         <label>Quantity <select id=\"quantity\" name=\"quantity\"><option>1</option><option>2</option>\
         <option>3</option></select></label>\n\
         <button id=\"buy\">Buy</button>\n</form>\n<p><a href=\"/shop\">Back to the catalogue</a></p>"
    );
    layout(name, &body)
}

/// The page after an order.
pub(crate) fn receipt(order: &Value) -> String {
    let (id, quantity, total) = (&order["id"], &order["quantity"], price(&order["total_cents"]));
    let body =
        format!("<p>Order <b id=\"order\">{id}</b>: {quantity} for {total}.</p>\n<p><a href=\"/shop\">Go on</a></p>");
    layout("Thank you", &body)
}

fn layout(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"/shop/assets/shop.css\">\n\
         <script src=\"/shop/assets/shop.js\" defer></script>\n</head>\n<body>\n\
         <header><img src=\"/shop/assets/banner.svg\" alt=\"The built-in shop\"></header>\n\
         <main>\n<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
}

fn price(cents: &Value) -> String {
    let cents = cents.as_u64().unwrap_or(0);
    format!("{}.{:02} EUR", cents / 100, cents % 100)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
