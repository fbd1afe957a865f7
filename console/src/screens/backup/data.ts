// Backups: the node makes none by itself, so that the console says what to run, and what there is to back up.

/** Puts a text into one word of a shell. */
export const shell = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

export interface Choices {
  server: string;
  user: string;
  repository: string;
  /** Buckets to back up; all without any. */
  buckets: string[];
  passphrase: boolean;
  keep: number;
}

/** A command, and what it is for. */
export interface Command {
  title: string;
  text: string;
  command: string;
}

/** The commands of `nacre backup` and `nacre restore` for what was chosen, in the order in which people need them. */
export function commandsOf({ server, user, repository, buckets, passphrase, keep }: Choices): Command[] {
  const at = `--server ${shell(server)} --user ${shell(user)}`;
  const repo = shell(repository || 'backups');
  const only = buckets.map((name) => ` --bucket ${shell(name)}`).join('');
  const secret = passphrase ? ' --passphrase-file secret.txt' : '';
  const [first] = buckets;
  return [
    { title: 'Back up', text: 'The first backup is full, later ones hold the changes. Run it from a timer. It exits with 0 only if the backup is complete.', command: `nacre backup create ${repo}${only} ${at}${secret}` },
    { title: 'List', text: 'Lists complete, damaged and interrupted backups.', command: `nacre backup list ${repo}${secret}` },
    { title: 'Verify', text: 'Reads every byte of the last backup and of those it builds on.', command: `nacre backup verify ${repo} latest --read-data${secret}` },
    { title: 'Compare', text: 'Compares the last backup with the bucket, document by document.', command: `nacre backup diff ${repo} latest --bucket ${shell(first ?? 'BUCKET')} ${at}${secret}` },
    { title: 'Try a restore', text: 'Counts what would be written without writing it.', command: `nacre restore ${repo} latest${only} --dry-run ${at}${secret}` },
    { title: 'Restore', text: 'Newer documents in the cluster are kept. With --force the backup wins.', command: `nacre restore ${repo} latest${only} --create-buckets ${at}${secret}` },
    { title: 'Prune', text: 'Removes old backups, but none that a newer one builds on. --keep-daily, --keep-weekly and --keep-within keep more.', command: `nacre backup prune ${repo} --keep-last ${keep}${secret}` },
  ];
}
