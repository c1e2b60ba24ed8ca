// Adds the style sheet of pages that load on their first visit.

export function addSheet(text: string): void {
  const styles = new CSSStyleSheet();
  styles.replaceSync(text);
  document.adoptedStyleSheets.push(styles);
}
