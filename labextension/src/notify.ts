import { Notification } from '@jupyterlab/apputils';

const READ_MS = 15_000;

/** What a person has to know now: JupyterLab puts a notification without a time into its list alone, behind a bell. */
export function warn(text: string): void {
  Notification.warning(text, { autoClose: READ_MS });
}
