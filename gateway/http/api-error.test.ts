import { linkTo } from "../../test/support/answers.ts";
import { ApiError, errorTable } from "./api-error.ts";

const headersAt = (path: string) => {
  const list = new ApiError("not_found").headersAt(path);
  const pairs = list.flatMap((name, i) => (i % 2 === 0 ? [[name.toLowerCase(), list[i + 1]!] as const] : []));
  return { status: 404, headers: Object.fromEntries(pairs) };
};

test.each(["/", "/openapi.jsn", "/v1/inventory", "/v1/inventory/1/history", "/v1//inventory"])(
  "the link of an error leads to its code also below the path of an app or a proxy: %s",
  (path) => {
    const target = new URL(linkTo(headersAt(path), "help")!, `https://shop.example/stock${path}`);
    expect(target.href).toBe("https://shop.example/stock/docs/#not_found");
  },
);

test.each(["", `/${"x/".repeat(4_000)}`])(
  "the link of an error without a path, or with one of any depth, begins at the root",
  (path) => {
    expect(linkTo(headersAt(path), "help")).toBe("/docs/#not_found");
  },
);

test("no text names a path of the API: an app may serve it below another one", () => {
  const paths = Object.values(errorTable).filter(({ message }) => /\s\/\w/.test(message));
  expect(paths).toEqual([]);
});
