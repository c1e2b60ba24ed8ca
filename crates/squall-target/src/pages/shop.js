// Shows the stock of a product when its button is clicked.
document.addEventListener('click', async (event) => {
  const button = event.target.closest('#stock');
  if (!button) return;
  const response = await fetch(`/api/products/${button.dataset.product}`);
  const product = await response.json();
  document.querySelector('#in-stock').textContent = product.in_stock ? 'in stock' : 'sold out';
});
