// Jest's environment for planted faults: after the first failure the other tests of a file tell nothing new.
import { TestEnvironment } from "jest-environment-node";

export default class StopAtFailure extends TestEnvironment {
  #hasFailed = false;

  handleTestEvent(event) {
    if (event.name === "test_fn_failure" || event.name === "hook_failure") this.#hasFailed = true;
    if (event.name === "test_start" && this.#hasFailed) event.test.mode = "skip";
  }
}
