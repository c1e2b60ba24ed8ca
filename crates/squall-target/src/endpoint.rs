//! The table of endpoints. The router, `/stats`, `/metrics` and the guide at `/` read it.

/// An endpoint of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum TargetEndpoint {
    Index,
    Login,
    Products,
    Product,
    Orders,
    Order,
    /// The page of the catalogue.
    ShopHome,
    /// The page of a product.
    ShopProduct,
    /// Where the form of a product's page goes.
    ShopOrders,
    /// The page of an order.
    ShopReceipt,
    /// What the pages load.
    ShopAsset,
    Health,
    Delay,
    RandomDelay,
    Fail,
    Bytes,
    Echo,
    Redirect,
    Freeze,
    /// Any other path; the response is 404.
    Other,
    /// The counts of the other endpoints; not counted itself.
    Stats,
    /// The same for Prometheus; not counted itself.
    Metrics,
}

/// Every endpoint that is counted, with its path and what it does.
const ENDPOINTS: [(TargetEndpoint, &str, &str); TargetEndpoint::COUNTED] = [
    (TargetEndpoint::Index, "/", "GET: this guide"),
    (TargetEndpoint::Login, "/auth/login", "POST {\"username\":…,\"password\":…}: an access_token"),
    (TargetEndpoint::Products, "/api/products", "GET ?page=1: a page of 20 products"),
    (TargetEndpoint::Product, "/api/products/{id}", "GET: one product, 1 to 400"),
    (TargetEndpoint::Orders, "/api/orders", "POST {\"product_id\":7,\"quantity\":1} with a bearer token: an order"),
    (TargetEndpoint::Order, "/api/orders/{id}", "GET: one order"),
    (TargetEndpoint::ShopHome, "/shop", "GET ?page=1: the catalogue as a page for browsers"),
    (TargetEndpoint::ShopProduct, "/shop/{id}", "GET: the page of a product, with a form"),
    (TargetEndpoint::ShopOrders, "/shop/orders", "POST product_id=7&quantity=1: redirects to the order's page"),
    (TargetEndpoint::ShopReceipt, "/shop/orders/{id}", "GET: the page of an order"),
    (TargetEndpoint::ShopAsset, "/shop/assets/{name}", "GET: shop.css, shop.js, banner.svg"),
    (TargetEndpoint::Health, "/health", "GET: {\"status\":\"ok\"}"),
    (TargetEndpoint::Delay, "/delay/{ms}", "answers after {ms} milliseconds"),
    (TargetEndpoint::RandomDelay, "/random-delay", "?min=5&max=50: answers after a random time in milliseconds"),
    (TargetEndpoint::Fail, "/fail", "?rate=0.1&status=500: fails this share of requests"),
    (TargetEndpoint::Bytes, "/bytes/{n}", "answers with a body of n bytes"),
    (TargetEndpoint::Echo, "/echo", "answers with the request as JSON"),
    (TargetEndpoint::Redirect, "/redirect/{n}", "redirects n times, then to /health"),
    (TargetEndpoint::Freeze, "/freeze/{ms}", "answers at once; every later answer waits until the freeze is over"),
    (TargetEndpoint::Other, "(other)", "anything else: 404"),
];

impl TargetEndpoint {
    pub(crate) const COUNTED: usize = TargetEndpoint::Stats as usize;

    /// Every counted endpoint and its path.
    pub(crate) fn all() -> impl Iterator<Item = (TargetEndpoint, &'static str)> {
        ENDPOINTS.iter().map(|(endpoint, path, _)| (*endpoint, *path))
    }

    /// The endpoint of `path` and the rest of it, where the endpoint has one.
    pub(crate) fn match_path(path: &str) -> (TargetEndpoint, &str) {
        let exact = match path {
            "/api/products" => TargetEndpoint::Products,
            "/health" => TargetEndpoint::Health,
            "/" => TargetEndpoint::Index,
            "/auth/login" => TargetEndpoint::Login,
            "/api/orders" => TargetEndpoint::Orders,
            "/shop" => TargetEndpoint::ShopHome,
            "/shop/orders" => TargetEndpoint::ShopOrders,
            "/random-delay" => TargetEndpoint::RandomDelay,
            "/fail" => TargetEndpoint::Fail,
            "/echo" => TargetEndpoint::Echo,
            "/stats" => TargetEndpoint::Stats,
            "/metrics" => TargetEndpoint::Metrics,
            _ => return TargetEndpoint::match_prefix(path),
        };
        (exact, "")
    }

    fn match_prefix(path: &str) -> (TargetEndpoint, &str) {
        const PREFIXES: [(&str, TargetEndpoint); 9] = [
            ("/api/products/", TargetEndpoint::Product),
            ("/api/orders/", TargetEndpoint::Order),
            ("/shop/orders/", TargetEndpoint::ShopReceipt),
            ("/shop/assets/", TargetEndpoint::ShopAsset),
            ("/shop/", TargetEndpoint::ShopProduct),
            ("/delay/", TargetEndpoint::Delay),
            ("/bytes/", TargetEndpoint::Bytes),
            ("/redirect/", TargetEndpoint::Redirect),
            ("/freeze/", TargetEndpoint::Freeze),
        ];
        let found = PREFIXES.iter().find_map(|(prefix, endpoint)| Some((*endpoint, path.strip_prefix(prefix)?)));
        found.filter(|(_, argument)| !argument.is_empty()).unwrap_or((TargetEndpoint::Other, ""))
    }
}

/// The guide at `/`: every endpoint in words.
pub fn endpoint_guide() -> String {
    let lines =
        ENDPOINTS.iter().take(TargetEndpoint::Other as usize).map(|(_, path, what)| format!("{path:<20}{what}\n"));
    lines.collect::<String>()
        + "/stats              GET: how many requests each of these has received\n\
           /metrics            GET: the same for Prometheus\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_endpoints() {
        for (at, (endpoint, ..)) in ENDPOINTS.iter().enumerate() {
            assert_eq!(*endpoint as usize, at);
        }
    }

    #[test]
    fn paths_lead_to_their_endpoints() {
        for (path, expected) in [
            ("/api/products", (TargetEndpoint::Products, "")),
            ("/api/products/7", (TargetEndpoint::Product, "7")),
            ("/api/products/", (TargetEndpoint::Other, "")),
            ("/shop/orders", (TargetEndpoint::ShopOrders, "")),
            ("/shop/orders/7", (TargetEndpoint::ShopReceipt, "7")),
            ("/shop/assets/shop.css", (TargetEndpoint::ShopAsset, "shop.css")),
            ("/shop/7", (TargetEndpoint::ShopProduct, "7")),
            ("/delay/20", (TargetEndpoint::Delay, "20")),
            ("/stats", (TargetEndpoint::Stats, "")),
            ("/metrics", (TargetEndpoint::Metrics, "")),
            ("/nothing", (TargetEndpoint::Other, "")),
        ] {
            assert_eq!(TargetEndpoint::match_path(path), expected, "{path}");
        }
    }
}
