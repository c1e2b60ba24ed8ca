// A figure that follows the store each second. It writes its text itself: comparing everything around it
// would cost more than the figure.

import { Component, type JSX } from "preact";
import { store } from "../store";

interface Props {
  text: () => string;
  /** Whether it is on the screen. Elsewhere the text follows when its component is rendered. */
  shown?: () => boolean;
  /** Whether the element keeps the width of its longest text, so that a new text moves nothing beside it. */
  sized?: boolean;
}

export class LiveText extends Component<Props> {
  private readonly node = document.createTextNode("");
  private element: HTMLElement | null = null;
  private longest = 0;
  private unsubscribe = (): void => undefined;

  override componentDidMount(): void {
    this.unsubscribe = store.subscribe(() => {
      if (this.props.shown?.() ?? true) this.write();
    });
  }

  override componentWillUnmount(): void {
    this.unsubscribe();
  }

  private write(): void {
    const text = this.props.text();
    if (text !== this.node.data) this.node.data = text;
    if (!this.props.sized || !this.element || this.node.length <= this.longest) return;
    this.longest = this.node.length;
    // A figure has points and commas, which are narrower than a digit.
    this.element.style.width = `${this.longest * 0.92}ch`;
  }

  private readonly hold = (element: HTMLElement | null): void => {
    this.element = element;
    element?.append(this.node);
    this.write();
  };

  override componentDidUpdate(): void {
    this.write();
  }

  override render(): JSX.Element {
    return <span class="live" ref={this.hold} />;
  }
}
