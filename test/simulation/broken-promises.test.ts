import { readFileSync } from "node:fs";
import { plantedFaults } from "./broken-promises.ts";

test("each fault to plant is another text for one that its file has once", () => {
  for (const { what, file, find, replace } of plantedFaults) {
    const times = readFileSync(file, "utf8").split(find).length - 1;
    expect({ what, times, isChanged: find !== replace }).toEqual({ what, times: 1, isChanged: true });
  }
});
