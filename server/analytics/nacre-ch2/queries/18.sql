SELECT c_last, c_id AS o_id, o_entry_d, o_ol_cnt, SUM(ol_amount) AS amount FROM customer, lines
WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
GROUP BY lines.o_id, o_w_id, o_d_id, c_id, c_last, o_entry_d, o_ol_cnt
HAVING SUM(ol_amount) > 200 ORDER BY amount DESC, o_entry_d LIMIT 100
