// esbuild bundles imported style sheets; one that is imported as a text is its text.
declare module "*.css" {
  const text: string;
  export default text;
}
