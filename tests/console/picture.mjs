// Takes the picture of the console in the README: the page of the latest session, as tall as its first waiting call and its
// first task. The session of docs/tutorials/first-plan.md waits if its plan is confirmed with
// `gavel plan execute ID --ask-for createPullRequest`. No login: auth.mode = none.
//   node tests/console/picture.mjs '{"modules": "DIRECTORY of playwright-core", "chromium": "/usr/bin/chromium",
//     "script": true, "url": "http://127.0.0.1:8080"}' docs/console.png
import { opens } from './person.mjs';

const [told, path] = [JSON.parse(process.argv[2]), process.argv[3]];
const { browser, page } = await opens(told);
await page.setViewportSize({ width: 1000, height: 1300 });
await page.goto(`${told.url}/console/sessions`);
await page.locator('main a[href^="/console/sessions/"]').first().click();
await page.getByRole('heading', { name: 'Planning session', exact: true }).waitFor();
await page.frameLocator('iframe.progress').getByText('for a person').waitFor();
await page.screenshot({ path });
await browser.close();
